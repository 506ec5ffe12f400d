//! A file that is put aside when it is full: `audit.log` becomes `audit.log.1`, that `audit.log.2`.
//!
//! If others put it aside, or remove it, it is made anew: lines are written to where the path leads.

use std::{
    fs, io,
    io::Write as _,
    os::unix::fs::{MetadataExt as _, OpenOptionsExt as _},
    path::{Path, PathBuf},
};

use super::{Rotation, Sink};

/// Who called what is nobody else's business.
const MODE: u32 = 0o600;

#[derive(Debug)]
pub(super) struct File {
    path: PathBuf,
    rotation: Rotation,
    /// `None` when there is to be a new file; if it cannot be made, the next lines try again.
    open: Option<Open>,
}

#[derive(Debug)]
struct Open {
    file: fs::File,
    size: u64,
    /// Device and number: which file it is, whatever its name.
    identity: (u64, u64),
}

impl File {
    pub(super) fn open(path: PathBuf, rotation: Rotation) -> io::Result<Self> {
        let open = Some(Open::at(&path)?);
        Ok(Self { path, rotation, open })
    }

    fn rotate(&mut self) -> io::Result<()> {
        let keep = self.rotation.keep;
        for number in (1..keep).rev() {
            match fs::rename(self.numbered(number), self.numbered(number + 1)) {
                Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
                _ => {}
            }
        }
        match keep {
            0 => fs::remove_file(&self.path)?,
            _ => fs::rename(&self.path, self.numbered(1))?,
        }
        self.open = None;
        Ok(())
    }

    /// Looks whether our file is still what the path leads to: once per batch, which costs little beside
    /// writing it. One that was cut short (`copytruncate`) is as large as it is now.
    fn follow(&mut self) {
        let Some(open) = &mut self.open else { return };
        match fs::metadata(&self.path) {
            Ok(there) if identity(&there) == open.identity => open.size = there.len(),
            Ok(_) => self.open = None,
            Err(error) if error.kind() == io::ErrorKind::NotFound => self.open = None,
            // Ours can still be written to.
            Err(_) => {}
        }
    }

    fn numbered(&self, number: u32) -> PathBuf {
        let mut name = self.path.clone().into_os_string();
        name.push(format!(".{number}"));
        name.into()
    }
}

impl Sink for File {
    fn write(&mut self, lines: &[u8]) -> io::Result<()> {
        let length = lines.len() as u64;
        self.follow();
        let is_full = |open: &Open| open.size > 0 && open.size + length > self.rotation.max_size;
        if self.open.as_ref().is_some_and(is_full)
            && let Err(error) = self.rotate()
        {
            // A file that is too large is better than a line that is lost.
            tracing::warn!(path = %self.path.display(), %error, "the audit log cannot be rotated");
        }
        let open = match &mut self.open {
            Some(open) => open,
            none => none.insert(Open::at(&self.path)?),
        };
        if let Err(error) = open.file.write_all(lines) {
            // A full disk may have taken half of it. If even that fails, half a line is what remains.
            open.file.set_len(open.size).ok();
            return Err(error);
        }
        open.size += length;
        Ok(())
    }
}

impl Open {
    fn at(path: &Path) -> io::Result<Self> {
        let file = fs::OpenOptions::new().create(true).append(true).mode(MODE).open(path)?;
        let metadata = file.metadata()?;
        Ok(Self { file, size: metadata.len(), identity: identity(&metadata) })
    }
}

fn identity(metadata: &fs::Metadata) -> (u64, u64) {
    (metadata.dev(), metadata.ino())
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt as _;

    use super::*;

    fn read(folder: &Path) -> Vec<(String, String)> {
        let mut files: Vec<_> = fs::read_dir(folder)
            .unwrap()
            .map(|entry| {
                let entry = entry.unwrap();
                let text = fs::read_to_string(entry.path()).unwrap();
                (entry.file_name().into_string().unwrap(), text)
            })
            .collect();
        files.sort();
        files
    }

    fn files(folder: &[(&str, &str)]) -> Vec<(String, String)> {
        folder.iter().map(|(name, text)| ((*name).to_owned(), (*text).to_owned())).collect()
    }

    #[test]
    fn a_full_file_is_put_aside_and_the_oldest_goes() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("audit.log");
        let rotation = Rotation { max_size: 8, keep: 2 };
        let mut file = File::open(path.clone(), rotation).unwrap();
        for line in ["one\n", "two\n", "three\n", "four\n"] {
            file.write(line.as_bytes()).unwrap();
        }
        let expected =
            [("audit.log", "four\n"), ("audit.log.1", "three\n"), ("audit.log.2", "one\ntwo\n")];
        assert_eq!(read(folder.path()), files(&expected));
        let mode = fs::metadata(&path).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o600);

        // A restart goes on where the file ends.
        let mut file = File::open(path, rotation).unwrap();
        file.write(b"5\n").unwrap();
        file.write(b"six is long\n").unwrap();
        let expected = [
            ("audit.log", "six is long\n"),
            ("audit.log.1", "four\n5\n"),
            ("audit.log.2", "three\n"),
        ];
        assert_eq!(read(folder.path()), files(&expected));
    }

    #[test]
    fn nothing_is_kept_where_nothing_is_to_be() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("audit.log");
        let mut file = File::open(path, Rotation { max_size: 4, keep: 0 }).unwrap();
        file.write(b"one\n").unwrap();
        file.write(b"two\n").unwrap();
        assert_eq!(read(folder.path()), files(&[("audit.log", "two\n")]));
    }

    #[test]
    fn a_file_that_others_put_aside_or_remove_is_made_anew() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("audit.log");
        let mut file = File::open(path.clone(), Rotation { max_size: 16, keep: 1 }).unwrap();
        file.write(b"one\n").unwrap();
        fs::rename(&path, folder.path().join("audit.log-20270115")).unwrap();
        file.write(b"two\n").unwrap();
        fs::remove_file(&path).unwrap();
        file.write(b"three\n").unwrap();
        // As logrotate with `create` does it.
        fs::rename(&path, folder.path().join("audit.log-20270116")).unwrap();
        fs::write(&path, "").unwrap();
        file.write(b"four\n").unwrap();
        // As with `copytruncate`: what was cut off does not count for our own rotation.
        file.write(b"long enough\n").unwrap();
        fs::write(&path, "").unwrap();
        file.write(b"five\n").unwrap();
        let expected = [
            ("audit.log", "five\n"),
            ("audit.log-20270115", "one\n"),
            ("audit.log-20270116", "three\n"),
            ("audit.log.1", "four\n"),
        ];
        assert_eq!(read(folder.path()), files(&expected));
    }

    #[test]
    fn a_file_that_cannot_be_written_to_is_an_error_at_once() {
        let folder = tempfile::tempdir().unwrap();
        let missing = folder.path().join("missing/audit.log");
        let error = File::open(missing, Rotation::default()).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::NotFound);
    }
}
