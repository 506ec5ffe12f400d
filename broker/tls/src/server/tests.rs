//! What is in force, whatever happens to the files.

use std::{fs, os::unix::fs::symlink, path::Path, time::Duration};

use super::*;
use crate::{
    files,
    issue::{Authority, Issued, Subject},
};

const DAY: Duration = Duration::from_secs(24 * 60 * 60);

fn authority(name: &str) -> Authority {
    Authority::new(&Subject::new(name, DAY)).unwrap()
}

fn broker(authority: &Authority, name: &str) -> Issued {
    authority.issue(&Subject::new(name, DAY).host(name)).unwrap()
}

fn certificate(pem: &str) -> Certificate {
    Certificate::read(files::certificates(pem.as_bytes(), Path::new("a test")).unwrap()).unwrap()
}

/// A folder with what a broker needs, as `certs init` or a mounted secret has it.
struct Folder(tempfile::TempDir);

impl Folder {
    fn new(issued: &Issued, authority: &Authority) -> Self {
        let folder = Self(tempfile::tempdir().unwrap());
        folder.fill(issued, authority);
        folder
    }

    fn fill(&self, issued: &Issued, authority: &Authority) {
        self.write("tls.crt", &issued.certificate);
        self.write("tls.key", &issued.key);
        self.write("ca.crt", &authority.certificate());
    }

    fn write(&self, name: &str, content: &str) {
        fs::write(self.0.path().join(name), content).unwrap();
    }

    fn files(&self) -> Files {
        let file = |name: &str| self.0.path().join(name);
        Files { cert: file("tls.crt"), key: file("tls.key"), client_ca: Some(file("ca.crt")) }
    }

    fn server(&self) -> Server {
        Server::open(self.files()).unwrap()
    }
}

/// What is new is in force at the second look.
fn assert_changed(server: &Server) {
    let (first, second) = (server.look(), server.look());
    assert!(matches!((&first, &second), (Look::Same, Look::Changed)), "{first:?}, {second:?}");
}

fn names(server: &Server) -> Vec<String> {
    server.certificate().dns_sans.clone()
}

#[test]
fn a_certificate_that_is_rewritten_is_in_force_when_two_looks_saw_it() {
    let ca = authority("ca");
    let folder = Folder::new(&broker(&ca, "old"), &ca);
    let server = folder.server();
    let changes = server.ca_changes();
    assert!(matches!(server.look(), Look::Same));
    folder.fill(&broker(&ca, "new"), &ca);
    assert_eq!(names(&server), ["old"]);
    assert_changed(&server);
    assert_eq!(names(&server), ["new"]);
    assert!(!changes.has_changed().unwrap(), "the CA is the same");
}

#[test]
fn the_swapped_link_of_a_mounted_secret_is_seen() {
    let ca = authority("ca");
    let folder = tempfile::tempdir().unwrap();
    let at = |name: &str| folder.path().join(name);
    // As the kubelet does it: files link into ..data, which links to a folder of one version.
    let version = |name: &str, issued: &Issued| {
        fs::create_dir(at(name)).unwrap();
        fs::write(at(name).join("tls.crt"), &issued.certificate).unwrap();
        fs::write(at(name).join("tls.key"), &issued.key).unwrap();
        symlink(name, at("..data_tmp")).unwrap();
        fs::rename(at("..data_tmp"), at("..data")).unwrap();
    };
    version("..one", &broker(&ca, "one"));
    symlink("..data/tls.crt", at("tls.crt")).unwrap();
    symlink("..data/tls.key", at("tls.key")).unwrap();
    let files = Files { cert: at("tls.crt"), key: at("tls.key"), client_ca: None };
    let server = Server::open(files).unwrap();
    version("..two", &broker(&ca, "two"));
    fs::remove_dir_all(at("..one")).unwrap();
    assert_changed(&server);
    assert_eq!(names(&server), ["two"]);
}

#[test]
fn what_is_half_written_or_does_not_fit_leaves_the_last_good_one_in_force() {
    let ca = authority("ca");
    let good = broker(&ca, "good");
    let other = broker(&ca, "other");
    let folder = Folder::new(&good, &ca);
    let server = folder.server();
    let half = &other.certificate[..other.certificate.len() / 2];
    let garbled = half.to_owned() + "?" + &other.certificate[half.len()..];
    for (file, content, reason) in [
        ("tls.crt", half, "tls.crt is not PEM: it ends in the middle"),
        ("tls.crt", &garbled, "tls.crt is not PEM: the text of a section is garbled"),
        ("tls.crt", "", "there is no certificate in"),
        ("tls.crt", &other.certificate, "does not belong to the certificate in"),
        ("tls.key", &other.key, "does not belong to the certificate in"),
        ("tls.key", "", "there is no private key in"),
        ("tls.key", &good.key[..60], "tls.key is not PEM: it ends in the middle"),
        ("ca.crt", "", "there is no certificate in"),
        ("ca.crt", &other.certificate, "is not that of a CA"),
    ] {
        folder.write(file, content);
        let Look::Failed(problem) = server.look() else { panic!("{reason} was not seen") };
        let problem = problem.to_string();
        assert!(problem.contains(reason), "{problem}");
        assert!(matches!(server.look(), Look::Same), "told once");
        assert_eq!(server.problem(), Some(problem));
        assert_eq!(names(&server), ["good"]);
        folder.fill(&good, &ca);
        assert!(matches!(server.look(), Look::Same));
        assert_eq!(server.problem(), None);
    }
    fs::remove_file(server.files().cert.clone()).unwrap();
    let Look::Failed(problem) = server.look() else { panic!("it is gone") };
    assert!(problem.to_string().starts_with("cannot read "), "{problem}");
    folder.fill(&other, &ca);
    assert_changed(&server);
    assert_eq!((names(&server), server.problem()), (vec!["other".to_owned()], None));
}

#[test]
fn an_expired_certificate_does_not_replace_a_good_one_but_is_better_than_none() {
    let ca = authority("ca");
    let now = SystemTime::now();
    let mut subject = Subject::new("old", DAY).host("old");
    (subject.not_before, subject.not_after) = (now - 2 * DAY, now - DAY);
    let expired = ca.issue(&subject).unwrap();
    let folder = Folder::new(&expired, &ca);
    let server = folder.server();
    folder.fill(&broker(&ca, "good"), &ca);
    assert_changed(&server);
    folder.fill(&expired, &ca);
    let Look::Failed(problem) = server.look() else { panic!("it is worse") };
    assert!(problem.to_string().contains("expired at 20"), "{problem}");
    assert_eq!(names(&server), ["good"]);
}

#[test]
fn peers_are_verified_by_the_cas_in_force_now() {
    // Of the same name, as renewed ones are.
    let (ca, next) = (authority("ca"), authority("ca"));
    let folder = Folder::new(&broker(&ca, "broker"), &ca);
    let server = folder.server();
    let mut changes = server.ca_changes();
    let subject = Subject::new("driver", DAY).uri("spiffe://example/driver").host("driver.example");
    let driver = certificate(&ca.issue(&subject).unwrap().certificate);
    assert_eq!(driver.uri_sans, ["spiffe://example/driver"]);
    assert_eq!(driver.dns_sans, ["driver.example"]);
    assert_eq!(driver.common_name.as_deref(), Some("driver"));
    let now = SystemTime::now();
    server.verify(&driver, now).unwrap();
    let problem = server.verify(&driver, now + 2 * DAY).unwrap_err();
    assert!(matches!(problem, Problem::Expired(at) if at == driver.not_after), "{problem}");
    let problem = server.verify(&driver, now - DAY).unwrap_err();
    assert!(matches!(problem, Problem::NotYetValid(_)), "{problem}");

    folder.write("ca.crt", &(next.certificate() + &ca.certificate()));
    assert_changed(&server);
    assert!(changes.has_changed().unwrap());
    changes.mark_unchanged();
    server.verify(&driver, now).unwrap();
    folder.write("ca.crt", &next.certificate());
    assert_changed(&server);
    assert!(changes.has_changed().unwrap());
    let problem = server.verify(&driver, now).unwrap_err();
    assert!(matches!(problem, Problem::UnknownCa(_)), "{problem}");
}

#[test]
fn a_broken_certificate_keeps_no_removed_ca_trusted_nor_a_broken_ca_an_old_certificate() {
    let (ca, next) = (authority("ca"), authority("ca"));
    let folder = Folder::new(&broker(&ca, "old"), &ca);
    let server = folder.server();
    let mut changes = server.ca_changes();
    let driver = certificate(&broker(&ca, "driver").certificate);
    let now = SystemTime::now();
    server.verify(&driver, now).unwrap();
    let mut expired = Subject::new("late", DAY).host("late");
    (expired.not_before, expired.not_after) = (now - 2 * DAY, now - DAY);
    let expired = ca.issue(&expired).unwrap();
    for (number, (broken, reason)) in
        [("", "there is no certificate in"), (&expired.certificate, "expired at")]
            .into_iter()
            .enumerate()
    {
        folder.write("tls.crt", broken);
        folder.write("tls.key", &expired.key);
        let trusted = if number == 0 { &next } else { &ca };
        folder.write("ca.crt", &trusted.certificate());
        let Look::Failed(problem) = server.look() else { panic!("{reason} was not seen") };
        assert!(problem.to_string().contains(reason), "{problem}");
        assert!(matches!(server.look(), Look::Changed));
        assert!(changes.has_changed().unwrap());
        changes.mark_unchanged();
        assert_eq!(server.verify(&driver, now).is_ok(), number == 1);
        assert_eq!(names(&server), ["old"]);
        assert!(server.problem().unwrap().contains(reason), "it is still so");
    }

    folder.fill(&broker(&ca, "new"), &ca);
    folder.write("ca.crt", "");
    assert!(matches!(server.look(), Look::Failed(_)));
    assert!(matches!(server.look(), Look::Changed));
    assert_eq!(names(&server), ["new"]);
    server.verify(&driver, now).unwrap();
    assert!(!changes.has_changed().unwrap());
}

#[test]
fn all_that_is_wrong_is_listed_and_told_once() {
    let ca = authority("ca");
    let good = broker(&ca, "good");
    let folder = Folder::new(&good, &ca);
    let server = folder.server();
    folder.write("tls.key", "");
    folder.write("ca.crt", "");
    let told = || match server.look() {
        Look::Failed(problem) => problem.to_string(),
        other => panic!("{other:?}"),
    };
    let (first, second) = (told(), told());
    assert!(first.starts_with("there is no private key in "), "{first}");
    assert!(second.starts_with("there is no certificate in "), "{second}");
    assert!(matches!(server.look(), Look::Same));
    assert_eq!(server.problem(), Some(format!("{first}; {second}")));

    // A problem that comes with a change of the other part is told after it.
    folder.fill(&broker(&ca, "new"), &ca);
    assert!(matches!(server.look(), Look::Same));
    folder.write("ca.crt", "");
    assert!(matches!(server.look(), Look::Changed));
    assert_eq!(server.problem().as_ref(), Some(&second));
    assert_eq!(told(), second);
}

#[test]
fn a_bundle_that_is_still_written_is_not_in_force() {
    let (one, two) = (authority("one"), authority("two"));
    let folder = Folder::new(&broker(&one, "broker"), &one);
    let whole = one.certificate() + &two.certificate();
    folder.write("ca.crt", &whole);
    let server = folder.server();
    let changes = server.ca_changes();
    let driver = certificate(&broker(&two, "driver").certificate);
    let now = SystemTime::now();
    // Cut between two certificates, which is good PEM.
    for _ in 0..2 {
        folder.write("ca.crt", &one.certificate());
        assert!(matches!(server.look(), Look::Same));
        folder.write("ca.crt", &whole);
        assert!(matches!(server.look(), Look::Same));
    }
    // Different at each look, it goes on being written.
    folder.write("ca.crt", &one.certificate());
    assert!(matches!(server.look(), Look::Same));
    folder.write("ca.crt", &(one.certificate() + "# and\n"));
    assert!(matches!(server.look(), Look::Same));
    server.verify(&driver, now).unwrap();
    assert!(!changes.has_changed().unwrap());
    assert!(matches!(server.look(), Look::Changed), "as it was at the last look");
    server.verify(&driver, now).unwrap_err();
}
