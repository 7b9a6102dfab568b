//! A network between a client and the broker that the test can cut or hold up.

use std::io::{Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

/// Passes bytes on, unless it is told otherwise.
pub struct Proxy {
    pub port: u16,
    /// Nothing moves, and nobody is told.
    pub held: Arc<AtomicBool>,
    /// New connections are closed at once.
    closed: Arc<AtomicBool>,
    streams: Arc<Mutex<Vec<TcpStream>>>,
}

impl Proxy {
    pub fn to(port: u16) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let proxy = Self {
            port: listener.local_addr().unwrap().port(),
            held: Arc::default(),
            closed: Arc::default(),
            streams: Arc::default(),
        };
        let (held, closed, streams) =
            (Arc::clone(&proxy.held), Arc::clone(&proxy.closed), Arc::clone(&proxy.streams));
        std::thread::spawn(move || {
            for client in listener.incoming().flatten() {
                if closed.load(Ordering::Relaxed) {
                    continue;
                }
                let Ok(server) = TcpStream::connect(("127.0.0.1", port)) else { continue };
                for (from, to) in [(&client, &server), (&server, &client)] {
                    let (from, to) = (from.try_clone().unwrap(), to.try_clone().unwrap());
                    let held = Arc::clone(&held);
                    streams.lock().unwrap().push(from.try_clone().unwrap());
                    std::thread::spawn(move || pass(from, to, &held));
                }
            }
        });
        proxy
    }

    /// Breaks every connection and lets none be made.
    pub fn cut(&self) {
        self.closed.store(true, Ordering::Relaxed);
        for stream in self.streams.lock().unwrap().drain(..) {
            let _ = stream.shutdown(Shutdown::Both);
        }
    }

    pub fn mend(&self) {
        self.closed.store(false, Ordering::Relaxed);
        self.held.store(false, Ordering::Relaxed);
    }
}

fn pass(mut from: TcpStream, mut to: TcpStream, held: &AtomicBool) {
    let mut bytes = vec![0; 1 << 16];
    while let Ok(count @ 1..) = from.read(&mut bytes) {
        while held.load(Ordering::Relaxed) {
            std::thread::sleep(Duration::from_millis(5));
        }
        if to.write_all(&bytes[..count]).is_err() {
            break;
        }
    }
    let _ = to.shutdown(Shutdown::Both);
    let _ = from.shutdown(Shutdown::Both);
}
