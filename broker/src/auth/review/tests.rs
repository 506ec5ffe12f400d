use std::sync::atomic::{AtomicUsize, Ordering};

use serde_json::{Value, json};
use tokio::time::advance;

use super::*;

/// Says what it was told to, and counts how often it was asked.
#[derive(Debug, Default)]
struct Fake {
    answer: Mutex<Option<Result<Option<Identity>, String>>>,
    asked: AtomicUsize,
}

impl Fake {
    fn says(&self, answer: Result<Option<&str>, &str>) {
        let answer = answer.map(|name| name.and_then(Identity::named)).map_err(ToOwned::to_owned);
        *self.answer.lock().unwrap() = Some(answer);
    }

    fn asked(&self) -> usize {
        self.asked.load(Ordering::Relaxed)
    }
}

impl Reviewer for Fake {
    fn review(&self, _: Arc<Sensitive>) -> BoxFuture<'static, Result<Option<Identity>, String>> {
        self.asked.fetch_add(1, Ordering::Relaxed);
        let answer = self.answer.lock().unwrap().clone();
        async move {
            match answer {
                Some(answer) => answer,
                None => futures::future::pending().await,
            }
        }
        .boxed()
    }
}

const DRIVER: &str = "system:serviceaccount:ns:driver";
const FRESH: Duration = Duration::from_secs(60);

fn reviewed(rate: u32) -> (Arc<Fake>, Reviewed) {
    let fake = Arc::new(Fake::default());
    let rate = NonZeroU32::new(rate).unwrap();
    let reviewed = Reviewed::new(Arc::clone(&fake) as _, "machine-broker".to_owned(), FRESH, rate);
    (fake, reviewed)
}

fn token(claims: &Value, signature: &str) -> Bearer {
    let claims = BASE64_URL_SAFE_NO_PAD.encode(claims.to_string());
    Bearer::shown(format!("header.{claims}.{signature}").as_bytes())
}

fn in_an_hour() -> u64 {
    let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap();
    now.as_secs() + 3600
}

fn good(signature: &str) -> Bearer {
    token(&json!({"aud": ["other", "machine-broker"], "exp": in_an_hour()}), signature)
}

async fn name(reviewed: &Reviewed, token: Bearer) -> Result<Option<String>, CannotTell> {
    let holder = reviewed.holder(token).await?;
    Ok(holder.map(|holder| holder.identity.to_string()))
}

#[tokio::test(start_paused = true)]
async fn an_answer_is_good_for_a_while_and_asked_for_again_then() {
    let (fake, reviewed) = reviewed(10);
    fake.says(Ok(Some(DRIVER)));
    for _ in 0..100 {
        assert_eq!(name(&reviewed, good("a")).await, Ok(Some(DRIVER.to_owned())));
    }
    assert_eq!(fake.asked(), 1);
    fake.says(Ok(None));
    advance(FRESH).await;
    assert_eq!(name(&reviewed, good("a")).await, Ok(None), "it was revoked");
    assert_eq!(fake.asked(), 2);
    fake.says(Ok(Some(DRIVER)));
    advance(UNKNOWN_FOR).await;
    assert_eq!(name(&reviewed, good("a")).await, Ok(Some(DRIVER.to_owned())));
}

#[tokio::test(start_paused = true)]
async fn many_calls_with_one_token_are_one_question() {
    let (fake, reviewed) = reviewed(1);
    fake.says(Ok(Some(DRIVER)));
    let calls = (0..50).map(|_| name(&reviewed, good("a")));
    let answers = futures::future::join_all(calls).await;
    assert!(answers.iter().all(|answer| *answer == Ok(Some(DRIVER.to_owned()))));
    assert_eq!(fake.asked(), 1);
}

#[tokio::test(start_paused = true)]
async fn without_an_answer_the_last_one_is_good_until_the_token_expires() {
    let (fake, reviewed) = reviewed(10);
    fake.says(Ok(Some(DRIVER)));
    name(&reviewed, good("a")).await.unwrap();
    fake.says(Err("connection refused"));
    advance(FRESH).await;
    assert_eq!(name(&reviewed, good("a")).await, Ok(Some(DRIVER.to_owned())));
    assert_eq!(fake.asked(), 2);
    name(&reviewed, good("a")).await.unwrap();
    assert_eq!(fake.asked(), 2, "it is left in peace for a moment");
    let unknown = name(&reviewed, good("b")).await.unwrap_err();
    assert_eq!(&*unknown.why, "connection refused");
    assert!(!unknown.retry_after.is_zero());
}

#[tokio::test(start_paused = true)]
async fn an_api_server_that_hangs_is_not_waited_for_for_ever() {
    let (_, reviewed) = reviewed(10);
    let unknown = name(&reviewed, good("a")).await.unwrap_err();
    assert!(unknown.why.contains("no answer within"), "{unknown:?}");
}

#[tokio::test(start_paused = true)]
async fn beyond_the_pace_new_tokens_are_told_when_to_come_back() {
    let (fake, reviewed) = reviewed(1);
    fake.says(Ok(Some(DRIVER)));
    let mut refused = 0;
    for number in 0..20 {
        match name(&reviewed, good(&number.to_string())).await {
            Ok(known) => assert_eq!(known.as_deref(), Some(DRIVER)),
            Err(later) => {
                assert!(!later.retry_after.is_zero());
                refused += 1;
            }
        }
    }
    assert_eq!(fake.asked() + refused, 20);
    assert!(fake.asked() <= 3, "asked {} times", fake.asked());
}

#[tokio::test(start_paused = true)]
async fn what_is_plainly_not_for_us_is_not_asked_about() {
    let (fake, reviewed) = reviewed(10);
    fake.says(Ok(Some(DRIVER)));
    for claims in [
        json!({"aud": ["https://kubernetes.default.svc"], "exp": in_an_hour()}),
        json!({"aud": "other", "exp": in_an_hour()}),
        json!({"exp": in_an_hour()}),
        json!({"aud": "machine-broker", "exp": 1}),
        json!({"aud": 7}),
    ] {
        assert_eq!(name(&reviewed, token(&claims, "s")).await, Ok(None), "{claims}");
    }
    for text in ["mb_0123", "a.b.c", "a.b.c.d", "..", ""] {
        assert_eq!(name(&reviewed, Bearer::shown(text.as_bytes())).await, Ok(None), "{text}");
    }
    assert_eq!(name(&reviewed, good("a").without_text()).await, Ok(None));
    assert_eq!(fake.asked(), 0);
}

#[tokio::test(start_paused = true)]
async fn how_each_token_was_found_out_about_is_counted() {
    let (fake, reviewed) = reviewed(1);
    let metrics = Metrics::default();
    let reviewed = reviewed.counted(metrics.clone());
    let counted = || ["answered", "failed", "cached", "refused"].map(|r| metrics.token_reviews(r));
    fake.says(Err("connection refused"));
    name(&reviewed, good("a")).await.unwrap_err();
    assert_eq!(counted(), [0, 1, 0, 0]);
    fake.says(Ok(Some(DRIVER)));
    name(&reviewed, good("a")).await.unwrap();
    name(&reviewed, good("a")).await.unwrap();
    assert_eq!(counted(), [1, 1, 1, 0]);
    // The pace is that of the real clock, so how many it lets through is not for us to say.
    let others = (0..20).map(|number| name(&reviewed, good(&format!("other {number}"))));
    let answers = futures::future::join_all(others).await;
    let refused = answers.iter().filter(|answer| answer.is_err()).count() as u64;
    assert!(refused > 0);
    assert_eq!(counted(), [1 + 20 - refused, 1, 1, refused]);
}
