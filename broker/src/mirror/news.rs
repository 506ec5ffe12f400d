//! What happened to drivers, as Events say it.

use std::collections::VecDeque;

use tokio::time::{Duration, Instant};

use super::name::object_name;
use crate::{
    registry::{Event, What},
    session::End,
};

/// What waits to be told. In a crowd the oldest are not.
const MOST: usize = 500;
/// An Event shows with its object once that is there.
const WAIT: Duration = Duration::from_secs(5);
/// Kubernetes takes 1024 bytes.
const LONGEST: usize = 900;

/// Something to tell of a driver.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct News {
    /// The name of its object, which may not be there.
    pub about: String,
    pub reason: &'static str,
    pub warning: bool,
    pub note: String,
}

impl News {
    /// What operators of a cluster want to know, if they do.
    pub(super) fn of(event: &Event, replica: &str) -> Option<Self> {
        let details = event.details.as_str();
        let orderly = |end: End| end.to_string() == details;
        let (reason, warning, note) = match event.what {
            What::Registered => ("Registered", false, format!("connected to broker {replica}")),
            What::Rejected => ("Rejected", true, format!("broker {replica}: {details}")),
            What::Suspect => {
                ("Suspect", true, format!("gets no new work of broker {replica}: it {details}"))
            }
            What::Ready => ("Ready", false, format!("gets work of broker {replica} again")),
            What::Takeover => ("Takeover", true, format!("broker {replica}: {details}")),
            What::Over if orderly(End::Left) => {
                ("Left", false, format!("left broker {replica} by itself"))
            }
            // The one that came in its place, or the broker's own end, is no news of the driver.
            What::Over if orderly(End::Replaced) || orderly(End::ShutDown) => return None,
            What::Over => ("Lost", true, format!("lost by broker {replica}: {details}")),
            What::Asked | What::Draining => return None,
        };
        let about = object_name(&event.instance.id).into_owned();
        let end = (0..=LONGEST.min(note.len())).rev().find(|at| note.is_char_boundary(*at));
        let note = note[..end.unwrap_or(0)].to_owned();
        Some(Self { about, reason, warning, note })
    }
}

/// What is still to be told.
#[derive(Debug, Default)]
pub(super) struct Queue(VecDeque<(Instant, News)>);

impl Queue {
    pub(super) fn push(&mut self, news: News) {
        if self.0.len() == MOST {
            self.0.pop_front();
        }
        self.0.push_back((Instant::now(), news));
    }

    /// It could not be told now.
    pub(super) fn back(&mut self, news: News) {
        if self.0.len() < MOST {
            self.0.push_front((Instant::now(), news));
        }
    }

    /// The next one whose object is there, or that does not wait for it any more.
    pub(super) fn next(&mut self, is_there: impl Fn(&str) -> bool) -> Option<News> {
        let ripe = |(since, news): &(Instant, News)| {
            is_there(&news.about) || since.elapsed() >= WAIT || news.reason == "Rejected"
        };
        let place = self.0.iter().position(ripe)?;
        self.0.remove(place).map(|(_, news)| news)
    }
}

#[cfg(test)]
mod tests {
    use std::time::SystemTime;

    use super::*;
    use crate::driver::Instance;

    fn event(what: What, details: &str) -> Event {
        let instance = Instance { id: "Sim 0".into(), boot: None };
        Event { at: SystemTime::now(), what, details: details.to_owned(), session: None, instance }
    }

    fn reason(what: What, details: &str) -> Option<&'static str> {
        News::of(&event(what, details), "broker-0").map(|news| news.reason)
    }

    #[test]
    fn the_end_of_a_session_is_news_by_its_reason() {
        assert_eq!(reason(What::Over, &End::Silent.to_string()), Some("Lost"));
        assert_eq!(reason(What::Over, &End::Evicted("x".to_owned()).to_string()), Some("Lost"));
        assert_eq!(reason(What::Over, &End::Left.to_string()), Some("Left"));
        assert_eq!(reason(What::Over, &End::Replaced.to_string()), None);
        assert_eq!(reason(What::Over, &End::ShutDown.to_string()), None);
    }

    #[test]
    fn news_are_about_the_object_of_the_driver_and_not_too_long() {
        let long = "ä".repeat(2000);
        let news = News::of(&event(What::Rejected, &long), "broker-0").unwrap();
        assert!(news.note.starts_with("broker broker-0: ää") && news.note.len() <= 1024);
        assert_eq!(news.about, object_name("Sim 0"));
        assert!(news.warning);
    }

    #[tokio::test(start_paused = true)]
    async fn news_wait_for_the_object_but_not_for_long_and_not_in_any_number() {
        let mut queue = Queue::default();
        for _ in 0..2 * MOST {
            queue.push(News::of(&event(What::Registered, ""), "b").unwrap());
        }
        assert_eq!(queue.0.len(), MOST);
        assert_eq!(queue.next(|_| false), None);
        assert!(queue.next(|_| true).is_some());
        queue.push(News::of(&event(What::Rejected, ""), "b").unwrap());
        assert_eq!(queue.next(|_| false).unwrap().reason, "Rejected", "it may never have one");
        tokio::time::advance(WAIT).await;
        assert!(queue.next(|_| false).is_some());
    }
}
