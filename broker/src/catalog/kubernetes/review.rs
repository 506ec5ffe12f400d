//! Asks the API server whose token it is.

use std::sync::Arc;

use broker_secret::Sensitive;
use futures::{FutureExt as _, future::BoxFuture};
use k8s_openapi::api::authentication::v1::{TokenReview, TokenReviewSpec, TokenReviewStatus};
use kube::{Api, Client, api::PostParams};

use super::{Cluster, trouble};
use crate::auth::{Identity, Reviewer};

/// Everybody else may have been named by anyone who may name users.
const SERVICE_ACCOUNT: &str = "system:serviceaccount:";

/// The API server of a cluster as the one who knows the tokens of its service accounts.
#[derive(Debug)]
pub struct TokenReviews {
    cluster: Cluster,
    audience: String,
}

impl TokenReviews {
    /// Tokens must be meant for `audience`.
    pub fn new(cluster: Cluster, audience: String) -> Self {
        Self { cluster, audience }
    }
}

impl Reviewer for TokenReviews {
    fn review(
        &self,
        token: Arc<Sensitive>,
    ) -> BoxFuture<'static, Result<Option<Identity>, String>> {
        review(self.cluster.client(), self.audience.clone(), token).boxed()
    }
}

async fn review(
    client: Client,
    audience: String,
    token: Arc<Sensitive>,
) -> Result<Option<Identity>, String> {
    let Some(token) = token.as_str() else { return Ok(None) };
    let review = TokenReview {
        spec: TokenReviewSpec {
            audiences: Some(vec![audience.clone()]),
            token: Some(token.to_owned()),
        },
        ..TokenReview::default()
    };
    let api: Api<TokenReview> = Api::all(client);
    match api.create(&PostParams::default(), &review).await {
        Ok(reviewed) => Ok(reviewed.status.and_then(|status| holder(status, &audience))),
        Err(error) => Err(trouble::words(&error)),
    }
}

/// Who it is, if it is a service account and its token is for us.
fn holder(status: TokenReviewStatus, audience: &str) -> Option<Identity> {
    let authenticated = status.authenticated.unwrap_or(false);
    // An authenticator that knows nothing of audiences says none, and its tokens are good anywhere.
    let for_us = status.audiences.iter().flatten().any(|one| one == audience);
    let name = status.user.and_then(|user| user.username)?;
    (authenticated && for_us && name.starts_with(SERVICE_ACCOUNT))
        .then(|| Identity::named(&name))
        .flatten()
}

#[cfg(test)]
mod tests {
    use k8s_openapi::api::authentication::v1::UserInfo;

    use super::*;

    fn status(name: &str, audiences: &[&str]) -> TokenReviewStatus {
        TokenReviewStatus {
            authenticated: Some(true),
            audiences: Some(audiences.iter().map(ToString::to_string).collect()),
            user: Some(UserInfo { username: Some(name.to_owned()), ..UserInfo::default() }),
            error: None,
        }
    }

    #[test]
    fn a_service_account_with_a_token_for_us_is_known_by_its_name() {
        let name = "system:serviceaccount:ns:driver";
        let known = holder(status(name, &["machine-broker"]), "machine-broker");
        assert_eq!(known.unwrap().as_str(), name);
    }

    #[test]
    fn nobody_else_is() {
        let name = "system:serviceaccount:ns:driver";
        assert_eq!(holder(status(name, &["other"]), "machine-broker"), None);
        assert_eq!(holder(status(name, &[]), "machine-broker"), None);
        assert_eq!(holder(status("alice", &["machine-broker"]), "machine-broker"), None);
        assert_eq!(holder(status("system:admin", &["machine-broker"]), "machine-broker"), None);
        let denied =
            TokenReviewStatus { authenticated: Some(false), ..status(name, &["machine-broker"]) };
        assert_eq!(holder(denied, "machine-broker"), None);
    }
}
