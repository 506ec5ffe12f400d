use std::fs;

use tempfile::TempDir;

use super::*;

/// A policy and a token file, and what was made of them.
struct Fixture {
    dir: TempDir,
    auth: Auth,
    files: Files,
    token: String,
}

const READS: &str = "rules:\n- who: token:alice\n  operator: read\n";

impl Fixture {
    fn new(policy: &str) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let (token, entry) = make_token("alice").unwrap();
        let (policy_at, tokens_at) = (dir.path().join("policy"), dir.path().join("tokens"));
        fs::write(&policy_at, policy).unwrap();
        fs::write(&tokens_at, format!("tokens:\n{entry}")).unwrap();
        let (files, policy, tokens) = Files::open(Some(&policy_at), Some(&tokens_at)).unwrap();
        let auth = Auth::new(Settings {
            policy,
            authenticators: vec![Arc::new(tokens.unwrap())],
            ..Settings::default()
        });
        Self { dir, auth, files, token: token.to_string() }
    }

    fn write(&mut self, file: &str, text: &str) {
        fs::write(self.dir.path().join(file), text).unwrap();
        // What is seen twice is not in the middle of being written.
        self.files.look(&self.auth);
        self.files.look(&self.auth);
    }

    async fn alice(&self) -> Caller {
        recognise(&self.auth, Some(&format!("Bearer {}", self.token))).await.unwrap()
    }
}

async fn recognise(auth: &Auth, authorization: Option<&str>) -> Result<Caller, Denied> {
    let nobody = Auth::without_token(ConnectionId(1), "here".into(), None)?;
    match authorization {
        Some(authorization) => {
            auth.with_token(nobody, authorization.as_bytes(), &LastShown::default()).await
        }
        None => Ok(nobody),
    }
}

#[tokio::test]
async fn a_wrong_credential_is_never_taken_for_none() {
    let open = Auth::new(Settings::default());
    assert_eq!(recognise(&open, None).await.unwrap().identity, Identity::anonymous());
    for (header, why) in [
        ("Bearer abc", Denied::UnknownToken),
        ("bearer abc", Denied::UnknownToken),
        ("Bearer ", Denied::NotBearer),
        ("Basic abc", Denied::NotBearer),
        ("", Denied::NotBearer),
    ] {
        assert_eq!(recognise(&open, Some(header)).await.unwrap_err(), why, "{header:?}");
    }
}

#[tokio::test]
async fn whose_token_it_is_is_asked_for_every_call_of_a_connection() {
    let mut fixture = Fixture::new(READS);
    let last = LastShown::default();
    let authorization = format!("Bearer {}", fixture.token);
    let here = || Auth::without_token(ConnectionId(1), "here".into(), None);
    let nameless = || Err(Denied::NamelessCertificate);
    let shown = authorization.as_bytes();
    let denied = fixture.auth.with_known_token(nameless, shown, &last).unwrap();
    assert_eq!(denied.unwrap_err(), Denied::NamelessCertificate);
    let known = |fixture: &Fixture| fixture.auth.with_known_token(here, shown, &last);
    let first = known(&fixture).unwrap().unwrap();
    assert!(Arc::ptr_eq(&first, &known(&fixture).unwrap().unwrap()));
    let tokens = fs::read_to_string(fixture.dir.path().join("tokens")).unwrap();
    fixture.write("tokens", "tokens: []\n");
    assert!(known(&fixture).is_none(), "it is nobody's any more");
    let asked = fixture.auth.with_token(here().unwrap(), shown, &last).await;
    assert_eq!(asked.unwrap_err(), Denied::UnknownToken);
    fixture.write("tokens", &tokens.replace("alice", "bob"));
    assert_eq!(known(&fixture).unwrap().unwrap().identity, Identity::token("bob"));
}

#[tokio::test]
async fn nobody_is_told_to_show_something_and_somebody_what_they_lack() {
    let fixture = Fixture::new(READS);
    let nobody = recognise(&fixture.auth, None).await.unwrap();
    assert_eq!(fixture.auth.admits(&nobody, Need::Nothing), Ok(()));
    assert_eq!(fixture.auth.admits(&nobody, Need::Read), Err(Denied::NoCredentials));
    let alice = fixture.alice().await;
    assert_eq!(fixture.auth.admits(&alice, Need::Read), Ok(()));
    let denied = fixture.auth.allows(&alice, Act::Steer).unwrap_err();
    assert_eq!(denied.to_string(), "token:alice may not steer as operator");
}

#[tokio::test]
async fn a_new_policy_is_in_force_and_a_broken_one_is_not() {
    let mut fixture = Fixture::new(READS);
    let alice = fixture.alice().await;
    fixture.write("policy", &READS.replace("read", "steer"));
    assert_eq!(fixture.auth.allows(&alice, Act::Steer), Ok(()));
    fixture.write("policy", "rules:\n- who: token:alice\n  operator: wrong\n");
    assert_eq!(fixture.auth.allows(&alice, Act::Steer), Ok(()));
    let problem = fixture.auth.problems().join("\n");
    assert!(problem.contains("line 3"), "{problem}");
    fixture.write("policy", READS);
    assert!(fixture.auth.allows(&alice, Act::Steer).is_err());
    assert!(fixture.auth.problems().is_empty());
    fs::remove_file(fixture.dir.path().join("policy")).unwrap();
    fixture.files.look(&fixture.auth);
    assert_eq!(fixture.auth.allows(&alice, Act::Read), Ok(()));
    assert_eq!(fixture.auth.problems().len(), 1);
}

#[tokio::test]
async fn what_is_caught_in_the_middle_of_being_written_is_not_in_force() {
    let mut fixture = Fixture::new(READS);
    let alice = fixture.alice().await;
    let policy = fixture.dir.path().join("policy");
    fs::write(&policy, READS.replace("read", "steer")).unwrap();
    fixture.files.look(&fixture.auth);
    assert!(fixture.auth.allows(&alice, Act::Steer).is_err());
    fs::write(&policy, READS).unwrap();
    fixture.files.look(&fixture.auth);
    fixture.files.look(&fixture.auth);
    assert!(fixture.auth.allows(&alice, Act::Steer).is_err());
}

#[tokio::test(start_paused = true)]
async fn a_revocation_before_the_stream_listened_is_not_missed() {
    let mut fixture = Fixture::new(READS);
    let alice = fixture.alice().await;
    fixture.write("policy", "rules: []\n");
    let began = tokio::time::Instant::now();
    fixture.auth.revoked(&alice, |auth| auth.allows(&alice, Act::Read)).await;
    assert_eq!(began.elapsed(), Duration::ZERO);
}

#[tokio::test(start_paused = true)]
async fn a_stream_ends_at_once_when_its_token_is_taken_away() {
    let mut fixture = Fixture::new(READS);
    let alice = fixture.alice().await;
    let auth = fixture.auth.clone();
    let revoked = auth.revoked(&alice, |auth| auth.allows(&alice, Act::Read));
    let began = tokio::time::Instant::now();
    let (why, ()) = tokio::join!(revoked, async {
        tokio::task::yield_now().await;
        fixture.write("tokens", "tokens: []\n");
    });
    assert_eq!(why, Denied::UnknownToken);
    assert_eq!(began.elapsed(), Duration::ZERO);
}

#[tokio::test(start_paused = true)]
async fn a_stream_ends_at_once_when_the_policy_forbids_it_and_not_when_it_does_not() {
    let mut fixture = Fixture::new(READS);
    let alice = fixture.alice().await;
    let auth = fixture.auth.clone();
    let revoked = auth.revoked(&alice, |auth| auth.allows(&alice, Act::Read));
    let (why, ()) = tokio::join!(revoked, async {
        tokio::task::yield_now().await;
        fixture.write("policy", &READS.replace("read", "steer"));
        // Looked at twice, and found well.
        sleep(2 * RECHECK).await;
        fixture.write("policy", "rules: []\n");
    });
    assert_eq!(why.to_string(), "no rule of the policy names token:alice");
}

#[tokio::test]
async fn a_territory_is_the_kinds_and_namespaces_of_the_policy() {
    let policy = "rules:\n- who: token:alice\n  driver: {kinds: [A], namespaces: [x]}\n";
    let fixture = Fixture::new(policy);
    let alice = fixture.alice().await;
    let key =
        |kind: &str| DriverKey { api_version: "v1".into(), kind: kind.into(), provider: None };
    let territory = fixture.auth.territory(&alice, &[key("A")]).unwrap();
    assert!(territory.contains(&key("A"), "x"));
    assert!(!territory.contains(&key("A"), "y") && !territory.contains(&key("B"), "x"));
    assert!(fixture.auth.territory(&alice, &[key("A"), key("B")]).is_err());
    assert!(Territory::everywhere(&[key("B")]).contains(&key("B"), "y"));
}
