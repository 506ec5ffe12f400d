use std::{
    borrow::Cow,
    sync::{
        Condvar,
        atomic::{AtomicBool, Ordering},
    },
};

use super::{line::Clock, *};

const PATIENCE: Duration = Duration::from_secs(30);

/// A disk that can be full, or hang.
#[derive(Clone, Default)]
struct Disk(Arc<State>);

#[derive(Default)]
struct State {
    lines: Mutex<Vec<String>>,
    full: AtomicBool,
    hangs: Mutex<bool>,
    changed: Condvar,
}

impl Disk {
    fn hang(&self, hangs: bool) {
        *self.0.hangs.lock().unwrap() = hangs;
        self.0.changed.notify_all();
    }

    fn until(&self, right: impl Fn(&[String]) -> bool) -> Vec<String> {
        let lines = self.0.lines.lock().unwrap();
        let wait = |lines: &mut Vec<String>| !right(lines);
        let (lines, late) = self.0.changed.wait_timeout_while(lines, PATIENCE, wait).unwrap();
        assert!(!late.timed_out(), "{lines:#?}");
        lines.clone()
    }
}

impl Sink for Disk {
    fn write(&mut self, lines: &[u8]) -> io::Result<()> {
        drop(self.0.changed.wait_while(self.0.hangs.lock().unwrap(), |hangs| *hangs).unwrap());
        let mut written = self.0.lines.lock().unwrap();
        self.0.changed.notify_all();
        if self.0.full.load(Ordering::Acquire) {
            written.push("(full)".to_owned());
            return Err(io::ErrorKind::StorageFull.into());
        }
        written.extend(str::from_utf8(lines).unwrap().lines().map(ToOwned::to_owned));
        Ok(())
    }
}

fn said<'a>(text: impl Into<Cow<'a, str>>) -> Record<'a> {
    Record::new(Event::Operation, Outcome::Ok).saying(text)
}

#[tokio::test]
async fn what_was_written_before_the_end_is_on_the_disk_at_the_end() {
    let disk = Disk::default();
    let audit = Audit::to(disk.clone(), Pending::new(ROOM, GATHER)).unwrap();
    for number in 0..5_000 {
        audit.write(|| said(number.to_string()));
    }
    audit.close(PATIENCE).await;
    let lines = disk.0.lines.lock().unwrap().clone();
    assert_eq!(lines.len(), 5_000);
    assert!(lines[4_999].ends_with(r#""message":"4999"}"#), "{}", lines[4_999]);
    assert_eq!((audit.lost(), audit.last_lost()), (0, None));
}

#[tokio::test]
async fn a_disk_that_was_full_gets_a_line_that_says_how_many_are_missing() {
    let disk = Disk::default();
    disk.0.full.store(true, Ordering::Release);
    let audit = Audit::to(disk.clone(), Pending::new(ROOM, GATHER)).unwrap();
    audit.write(|| said("lost"));
    disk.until(|lines| !lines.is_empty());
    disk.0.full.store(false, Ordering::Release);
    // Without another record.
    let lines = disk.until(|lines| lines.last().is_some_and(|line| line != "(full)"));
    let line = lines.last().unwrap();
    assert!(line.ends_with(r#""event":"lines_lost","outcome":"failed","lines":1}"#), "{line}");
    audit.write(|| said("kept"));
    audit.close(PATIENCE).await;
    assert!(disk.0.lines.lock().unwrap().last().unwrap().contains("kept"));
    assert_eq!(audit.lost(), 1);
    assert!(audit.last_lost().is_some_and(|ago| ago < PATIENCE));
}

#[tokio::test]
async fn nobody_waits_for_a_disk_that_hangs() {
    let disk = Disk::default();
    disk.hang(true);
    let audit = Audit::to(disk.clone(), Pending::new(400, GATHER)).unwrap();
    for _ in 0..1_000 {
        audit.write(|| said("many"));
    }
    // Some wait, and some more may be in the writer's hands.
    assert!((1..=995).contains(&audit.lost()), "{}", audit.lost());
    audit.close(Duration::from_millis(20)).await;
    disk.hang(false);
    // Every record is there, or was owned up to.
    let counted = |line: &String| match line.rsplit_once(r#""lines":"#) {
        Some((_, missing)) => missing.trim_end_matches('}').parse().expect("a number"),
        None => 1,
    };
    disk.until(|lines| lines.iter().map(counted).sum::<u64>() == 1_000);
}

#[test]
fn enough_for_a_write_is_not_waited_for() {
    let disk = Disk::default();
    let audit = Audit::to(disk.clone(), Pending::new(ROOM, 100 * PATIENCE)).unwrap();
    let mut line = Vec::new();
    said("many").write_to(&mut line, &mut Clock::default());
    let enough = pending::FULL / line.len() + 1;
    for round in 1..=10 {
        for _ in 0..enough {
            audit.write(|| said("many"));
        }
        disk.until(|lines| lines.len() == round * enough);
    }
    assert_eq!(audit.lost(), 0);
}

#[test]
fn a_log_that_nobody_has_any_more_is_written_to_its_end() {
    let disk = Disk::default();
    let audit = Audit::to(disk.clone(), Pending::new(ROOM, 100 * PATIENCE)).unwrap();
    audit.write(|| said("last"));
    drop(audit);
    disk.until(|lines| lines.len() == 1);
}

#[test]
fn without_an_audit_log_no_record_is_made() {
    Audit::default().write(|| unreachable!("nobody reads it"));
}
