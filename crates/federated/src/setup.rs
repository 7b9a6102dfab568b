//! What administrators need to begin: the broker's configuration, certificates, terms, a file for each member.

pub mod broker;
pub mod certificates;
pub mod doctor;
mod readme;
pub mod typical;

use std::fs::{self, OpenOptions};
use std::io::Write;
use std::path::{Path, PathBuf};

use dpsgd::RawSettings;
use serde::Serialize;

use self::broker::BrokerConfig;
use self::certificates::{Authority, Certified};
use crate::name::ClientId;
use crate::nats::Identity;
use crate::nats::names::{COORDINATOR, member};
use crate::site::{ClientFile, ServerFile};
use crate::terms::{Terms, TermsError};
use crate::wire::model;

/// Bytes a second that broadcasts may take from the broker's network, all clients together.
const BROADCAST_RATE: u64 = 200_000_000;

/// A federation to be set up.
#[derive(Clone, Debug)]
pub struct Setup {
    /// What everybody agrees on.
    pub terms: Terms,
    /// The initial model.
    pub initial: Vec<f32>,
    /// The names and addresses of the broker; members dial the first.
    pub hosts: Vec<String>,
    /// Its port.
    pub port: u16,
    /// What clients train with, unless they say otherwise.
    pub train: RawSettings,
    /// What the coordinator measures the model on.
    pub test: Option<RawSettings>,
}

/// Why a federation could not be set up.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum SetupError {
    /// The terms.
    #[error(transparent)]
    Terms(#[from] TermsError),
    /// A certificate.
    #[error("the certificate of {of}: {why}")]
    Certificate {
        /// Whose.
        of: String,
        /// What is wrong.
        why: String,
    },
    /// A file.
    #[error("{}: {why}", path.display())]
    File {
        /// The file.
        path: PathBuf,
        /// What is wrong.
        why: String,
    },
}

fn certificate(of: &str) -> impl FnOnce(rcgen::Error) -> SetupError + '_ {
    move |error| SetupError::Certificate { of: of.into(), why: error.to_string() }
}

impl Setup {
    /// Writes everything into a new or empty directory; the files, in the order of the README.
    ///
    /// # Guarantee
    /// Files with a private key can be read by their owner only. Each key is in one file; the authority's is
    /// in none.
    pub fn write(&self, out: &Path) -> Result<Vec<PathBuf>, SetupError> {
        let terms = self.terms.clone().check()?;
        let run = terms.run().to_string();
        let broker = BrokerConfig {
            run: &run,
            listen: &listen(&self.hosts[0], self.port),
            clients: terms.clients,
            frame: terms.update_bytes(),
        };
        let authority = Authority::new(&run).map_err(certificate("the authority"))?;
        let ca = authority.pem();
        let served = authority.broker(&self.hosts).map_err(certificate("the broker"))?;
        let mut files = Files::new(out)?;
        files.public("broker/nats.conf", broker.text().as_bytes())?;
        files.public("broker/ca.pem", ca.as_bytes())?;
        files.public("broker/broker.pem", served.certificate.as_bytes())?;
        files.secret("broker/broker.key", served.key.as_bytes())?;
        let identity = |certified: Certified| Identity {
            broker: format!("tls://{}", address(&self.hosts[0], self.port)),
            ca: ca.clone(),
            certificate: certified.certificate,
            key: certified.key,
        };
        let frame = model::encode(terms.run(), 0, 0, &self.initial);
        files.public("initial.model", &frame)?;
        let own = authority.member(COORDINATOR).map_err(certificate(COORDINATOR))?;
        let server = ServerFile {
            initial: "initial.model".into(),
            broadcast_ms: (terms.clients * frame.len() as u64 * 1000) / BROADCAST_RATE,
            keep_log: false,
            identity: identity(own),
            terms: self.terms.clone(),
            test: self.test.clone(),
        };
        files.secret("server.toml", &text(SERVER_HEAD, &server)?)?;
        for number in 1..=terms.clients {
            let name = member(number);
            let own = authority.member(&name).map_err(certificate(&name))?;
            let client = ClientFile {
                client: ClientId(number),
                identity: identity(own),
                terms: self.terms.clone(),
                train: self.train.clone(),
            };
            files.secret(&format!("{name}.toml"), &text(CLIENT_HEAD, &client)?)?;
        }
        files.public("README.md", readme::text(&terms, &self.hosts[0], self.port, &broker).as_bytes())?;
        Ok(files.written)
    }
}

const SERVER_HEAD: &str = "# The coordinator of a federation: dpsgd serve server.toml\n\
    # Holds a private key. Whoever reads it can pose as the coordinator.\n\n";
const CLIENT_HEAD: &str = "# A client of a federation: dpsgd join THIS_FILE --data …\n\
    # Holds a private key: bring it to its site by a safe way, and keep no copy. Whoever reads it can send\n\
    # updates in the name of this client. No one learns private data from it.\n\n";

fn text(head: &str, file: &impl Serialize) -> Result<Vec<u8>, SetupError> {
    let refuse = |why: String| SetupError::File { path: "a member's file".into(), why };
    let body = toml::to_string(file).map_err(|error| refuse(error.to_string()))?;
    Ok(format!("{head}{body}").into_bytes())
}

/// Loopback stays on loopback; everything else is dialled from other machines.
fn listen(host: &str, port: u16) -> String {
    let local = host == "localhost" || host.parse().is_ok_and(|ip: std::net::IpAddr| ip.is_loopback());
    if local { format!("127.0.0.1:{port}") } else { format!("0.0.0.0:{port}") }
}

fn address(host: &str, port: u16) -> String {
    if host.contains(':') { format!("[{host}]:{port}") } else { format!("{host}:{port}") }
}

/// Files of a directory that must not exist or be empty.
struct Files {
    out: PathBuf,
    written: Vec<PathBuf>,
}

impl Files {
    fn new(out: &Path) -> Result<Self, SetupError> {
        let refuse = |why: String| SetupError::File { path: out.to_owned(), why };
        if fs::read_dir(out).is_ok_and(|mut there| there.next().is_some()) {
            return Err(refuse("it is not empty; give a new directory".into()));
        }
        fs::create_dir_all(out.join("broker")).map_err(|error| refuse(error.to_string()))?;
        Ok(Self { out: out.to_owned(), written: Vec::new() })
    }

    fn public(&mut self, name: &str, bytes: &[u8]) -> Result<(), SetupError> {
        self.write(name, bytes, 0o644)
    }

    fn secret(&mut self, name: &str, bytes: &[u8]) -> Result<(), SetupError> {
        self.write(name, bytes, 0o600)
    }

    fn write(&mut self, name: &str, bytes: &[u8], mode: u32) -> Result<(), SetupError> {
        let path = self.out.join(name);
        let mut options = OpenOptions::new();
        options.write(true).create_new(true);
        // Before the first byte is in it, not after.
        #[cfg(unix)]
        std::os::unix::fs::OpenOptionsExt::mode(&mut options, mode);
        #[cfg(not(unix))]
        let _ = mode;
        let written = options.open(&path).and_then(|mut file| file.write_all(bytes));
        written.map_err(|error| SetupError::File { path: path.clone(), why: error.to_string() })?;
        self.written.push(path);
        Ok(())
    }
}
