//! What operators should know of the broker's certificates.

use std::time::SystemTime;

use broker_tls::Server;

/// Certificates live for hours or for years; whoever renews them does so long before this part of
/// their time is left.
const LAST_PART: u32 = 10;

/// What is wrong, with what to do about it.
pub(super) fn concerns(tls: &Server, now: SystemTime) -> Vec<(String, &'static str)> {
    let mut concerns = Vec::new();
    let certificate = tls.certificate();
    let (from, to) = (certificate.not_before, certificate.not_after);
    let last_part = to.duration_since(from).unwrap_or_default() / LAST_PART;
    let at = humantime::format_rfc3339_seconds(to);
    let renew = "renew it in its file: it is in force within seconds, without a restart";
    match to.duration_since(now) {
        Err(_) => concerns.push((format!("the broker's certificate expired at {at}"), renew)),
        Ok(left) if left < last_part => {
            concerns.push((format!("the broker's certificate expires at {at}"), renew));
        }
        Ok(_) => {}
    }
    if let Some(problem) = tls.problem() {
        concerns.push((
            format!("the TLS files as they are now are not in force: {problem}"),
            "mend them; until then what they said before is used",
        ));
    }
    concerns
}

#[cfg(test)]
mod tests {
    use std::{fs, time::Duration};

    use broker_tls::{
        issue::{Authority, Subject},
        server::{Files, Look},
    };

    use super::*;

    #[test]
    fn certificates_that_end_soon_and_files_that_are_broken_are_concerns() {
        let folder = tempfile::tempdir().unwrap();
        let file = |name: &str| folder.path().join(name);
        let files = Files { cert: file("crt"), key: file("key"), client_ca: None };
        let day = Duration::from_secs(24 * 60 * 60);
        let authority = Authority::new(&Subject::new("ca", 30 * day)).unwrap();
        let issued = authority.issue(&Subject::new("broker", 30 * day)).unwrap();
        fs::write(&files.cert, issued.certificate).unwrap();
        fs::write(&files.key, issued.key).unwrap();
        let tls = Server::open(files.clone()).unwrap();
        let after = |days: u32| {
            let concerns = concerns(&tls, SystemTime::now() + days * day);
            concerns.into_iter().map(|(what, _)| what).collect::<Vec<_>>().join("; ")
        };
        assert_eq!(after(26), "");
        assert!(after(28).starts_with("the broker's certificate expires at 20"));
        assert!(after(31).starts_with("the broker's certificate expired at 20"));
        fs::write(&files.key, "").unwrap();
        assert!(matches!(tls.look(), Look::Failed(_)));
        assert!(after(0).contains("not in force: there is no private key in"));
    }
}
