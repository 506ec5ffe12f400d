//! Ports on loopback, and whose they are.

use std::{fs, net::TcpListener};

/// A port that is free now, below those that the system hands out by itself: nobody takes one of them
/// by chance before its program does.
pub(crate) fn free() -> u16 {
    loop {
        let port = rand::random_range(20_000..32_768);
        if TcpListener::bind(("127.0.0.1", port)).is_ok() {
            return port;
        }
    }
}

/// Whether this process listens on the port, and not one that was there before.
pub(crate) fn is_owned_by(port: u16, process: u32) -> bool {
    let Some(inode) = listening(port) else { return false };
    let Ok(files) = fs::read_dir(format!("/proc/{process}/fd")) else { return false };
    let socket = format!("socket:[{inode}]");
    files
        .flatten()
        .any(|file| fs::read_link(file.path()).is_ok_and(|target| target.to_str() == Some(&socket)))
}

/// The socket that listens on a port of 127.0.0.1.
fn listening(port: u16) -> Option<u64> {
    const LISTEN: &str = "0A";
    let address = format!("0100007F:{port:04X}");
    let table = fs::read_to_string("/proc/net/tcp").ok()?;
    table.lines().find_map(|line| {
        let fields: Vec<_> = line.split_whitespace().collect();
        let is_it = fields.get(1) == Some(&address.as_str()) && fields.get(3) == Some(&LISTEN);
        is_it.then(|| fields.get(9)?.parse().ok())?
    })
}
