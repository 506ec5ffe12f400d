//! How many files the system lets us open, of which every connection is one.

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

/// For the catalog, the log, driver programs and all else.
const OTHERS: usize = 128;

/// How many connections there is room for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Rooms {
    pub(super) grpc: usize,
    pub(super) admin: usize,
}

/// Has the system let us open as many files as it may, and says how many of these connections fit in.
pub(super) fn room_for(grpc: usize, admin: usize) -> Rooms {
    let limit = getrlimit(Resource::Nofile);
    if limit.current != limit.maximum {
        let most = Rlimit { current: limit.maximum, ..limit };
        if let Err(error) = setrlimit(Resource::Nofile, most) {
            tracing::warn!(%error, "cannot raise the limit of open files");
        }
    }
    let files = getrlimit(Resource::Nofile).current;
    let files = files.and_then(|files| usize::try_from(files).ok()).unwrap_or(usize::MAX);
    let rooms = fit(files, grpc, admin);
    if rooms.grpc < grpc {
        tracing::warn!(
            files,
            connections = rooms.grpc,
            wanted = grpc,
            "the limit of open files leaves room for fewer connections"
        );
    }
    rooms
}

fn fit(files: usize, grpc: usize, admin: usize) -> Rooms {
    let files = files.saturating_sub(OTHERS).max(2);
    let admin = admin.min(files.div_ceil(8));
    Rooms { grpc: grpc.min(files - admin), admin }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn connections_never_use_up_the_files() {
        assert_eq!(fit(usize::MAX, 20_000, 1_000), Rooms { grpc: 20_000, admin: 1_000 });
        assert_eq!(fit(1024, 20_000, 1_000), Rooms { grpc: 784, admin: 112 });
        assert_eq!(fit(0, 20_000, 1_000), Rooms { grpc: 1, admin: 1 });
    }
}
