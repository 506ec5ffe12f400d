//! What is in tokens of service accounts, and such tokens with any lifetime: the API server itself makes
//! none for less than ten minutes. They are signed with its own key, so that it takes them for its own.

use base64::{Engine as _, prelude::BASE64_URL_SAFE_NO_PAD};
use ring::{
    rand::SystemRandom,
    signature::{ECDSA_P256_SHA256_FIXED_SIGNING, EcdsaKeyPair},
};
use serde_json::Value;

/// The namespace of the account that a token is for; `None` if it is for no account.
pub(crate) fn namespace(token: &str) -> Option<String> {
    let claims = BASE64_URL_SAFE_NO_PAD.decode(token.split('.').nth(1)?).ok()?;
    let claims: Value = serde_json::from_slice(&claims).ok()?;
    claims["kubernetes.io"]["namespace"].as_str().map(str::to_owned)
}

/// Signs claims with a key in PEM.
pub(crate) fn sign(claims: &Value, key: &str) -> String {
    let der: String = key.lines().filter(|line| !line.starts_with("-----")).collect();
    let der = base64::prelude::BASE64_STANDARD.decode(der).expect("PEM is base64");
    let random = SystemRandom::new();
    let key = EcdsaKeyPair::from_pkcs8(&ECDSA_P256_SHA256_FIXED_SIGNING, &der, &random)
        .expect("a key of the curve P-256");
    let header = BASE64_URL_SAFE_NO_PAD.encode(r#"{"alg":"ES256"}"#);
    let claims = BASE64_URL_SAFE_NO_PAD.encode(claims.to_string());
    let signed = format!("{header}.{claims}");
    let signature = key.sign(&random, signed.as_bytes()).expect("it can sign");
    format!("{signed}.{}", BASE64_URL_SAFE_NO_PAD.encode(signature))
}
