//! A broker of the test's own, in a directory of its own, on a free port.

use std::net::{TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use dpsgd::RawSettings;
use dpsgd::train::{Rule as StepRule, Schedule};
use dpsgd_federated::setup::{Setup, doctor};
use dpsgd_federated::{Bounds, Rule, ServerOuter, Staleness, Terms};
use tempfile::TempDir;

/// Waits until something is so; fails after a long time.
pub fn until(what: &str, mut so: impl FnMut() -> bool) {
    let began = Instant::now();
    while !so() {
        assert!(began.elapsed() < Duration::from_secs(300), "waited too long until {what}");
        std::thread::sleep(Duration::from_millis(10));
    }
}

/// A port that nobody uses now.
pub fn free_port() -> u16 {
    TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port()
}

/// Terms for updates of pure noise.
pub fn terms(clients: u64, dimension: u64) -> Terms {
    Terms {
        name: "a test".into(),
        dimension,
        clients,
        rounds: 1_000_000,
        max_staleness: 100_000,
        step: Schedule { start: 0.1, rule: StepRule::Constant },
        bounds: Bounds::of(1.0, 0.05),
        rule: Rule::EachUpdate,
        weight: Staleness::Constant,
        outer: ServerOuter::Plain,
    }
}

/// A broker that does not outlive the test.
pub struct Broker {
    pub folder: TempDir,
    pub port: u16,
    process: Option<Child>,
}

impl Broker {
    /// The files of a federation, and its broker, running.
    pub fn of(terms: Terms) -> Self {
        let mut broker = Self::prepared(terms);
        broker.start();
        broker
    }

    /// The same, not running yet.
    pub fn prepared(terms: Terms) -> Self {
        let folder = TempDir::new().unwrap();
        let port = free_port();
        let initial = vec![0.0; terms.dimension as usize];
        let setup = Setup {
            terms,
            initial,
            hosts: vec!["localhost".into()],
            port,
            train: RawSettings::default(),
            test: None,
        };
        setup.write(&folder.path().join("fed")).unwrap();
        Self { folder, port, process: None }
    }

    /// For files that somebody else wrote into `fed` of a folder.
    pub fn over(folder: TempDir, port: u16) -> Self {
        let mut broker = Self { folder, port, process: None };
        broker.start();
        broker
    }

    pub fn fed(&self) -> PathBuf {
        self.folder.path().join("fed")
    }

    pub fn file(&self, name: &str) -> PathBuf {
        self.fed().join(name)
    }

    pub fn start(&mut self) {
        assert!(self.process.is_none());
        let log = std::fs::File::options()
            .append(true)
            .create(true)
            .open(self.folder.path().join("broker.log"))
            .unwrap();
        let process = Command::new(doctor::nats_server().unwrap())
            .args(["-c", "nats.conf"])
            .current_dir(self.fed().join("broker"))
            .stdout(Stdio::null())
            .stderr(log)
            .spawn()
            .unwrap();
        self.process = Some(process);
        until("the broker listens", || TcpStream::connect(("127.0.0.1", self.port)).is_ok());
    }

    /// SIGKILL: nothing can be tidied up.
    pub fn kill(&mut self) {
        if let Some(mut process) = self.process.take() {
            process.kill().unwrap();
            process.wait().unwrap();
        }
    }

    /// Bytes on disk.
    pub fn stored(&self) -> u64 {
        fn size(path: &Path) -> u64 {
            // Files come and go while the broker runs.
            let Ok(entries) = std::fs::read_dir(path) else { return 0 };
            entries
                .flatten()
                .map(|entry| match entry.metadata() {
                    Ok(about) if about.is_dir() => size(&entry.path()),
                    Ok(about) => about.len(),
                    Err(_) => 0,
                })
                .sum()
        }
        size(&self.fed().join("broker/jetstream"))
    }
}

impl Drop for Broker {
    fn drop(&mut self) {
        self.kill();
    }
}
