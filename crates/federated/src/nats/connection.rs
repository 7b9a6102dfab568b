//! A connection to the broker that heals itself.

use std::sync::Arc;
use std::time::Duration;

use async_nats::jetstream::{self, Context};
use async_nats::{Client, ConnectErrorKind, ConnectOptions, Event};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::{ClientConfig, RootCertStore};
use serde::{Deserialize, Serialize};
use tokio::sync::watch;

use super::error::NatsError;

/// How long a request waits for its answer. A broken connection is noticed earlier.
const ANSWER: Duration = Duration::from_secs(10);

/// How long the news of a connection may take.
const NEWS: Duration = Duration::from_secs(5);

/// Where the broker is, and how the two ends know each other.
#[derive(Clone, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct Identity {
    /// The address of the broker, `tls://host:port`.
    pub broker: String,
    /// The certificate of the federation's authority, PEM. Nothing else is trusted.
    pub ca: String,
    /// The certificate of this member, PEM.
    pub certificate: String,
    /// The private key of this member, PEM.
    pub key: String,
}

/// A key must not end up in a log.
impl std::fmt::Debug for Identity {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Identity").field("broker", &self.broker).finish_non_exhaustive()
    }
}

impl Identity {
    /// TLS in both directions: the broker must show a certificate of the federation's authority, and so do we.
    fn tls(&self) -> Result<ClientConfig, NatsError> {
        let refuse = |what: &str, why: String| NatsError::Credentials { what: what.into(), why };
        let mut roots = RootCertStore::empty();
        for certificate in CertificateDer::pem_slice_iter(self.ca.as_bytes()) {
            let certificate = certificate.map_err(|error| refuse("ca", error.to_string()))?;
            roots.add(certificate).map_err(|error| refuse("ca", error.to_string()))?;
        }
        if roots.is_empty() {
            return Err(refuse("ca", "it holds no certificate".into()));
        }
        let chain: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(self.certificate.as_bytes()).collect();
        let chain = chain.map_err(|error| refuse("certificate", error.to_string()))?;
        let key = PrivateKeyDer::from_pem_slice(self.key.as_bytes())
            .map_err(|error| refuse("key", error.to_string()))?;
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let builder = ClientConfig::builder_with_provider(provider)
            // The broker knows it, so that an older version would be somebody's wish in between.
            .with_protocol_versions(&[&rustls::version::TLS13]);
        let builder = builder.map_err(|error| refuse("tls", error.to_string()))?;
        let config = builder.with_root_certificates(roots).with_client_auth_cert(chain, key);
        config.map_err(|error| refuse("certificate and key", error.to_string()))
    }
}

/// What the owner of a connection is told about it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Signal {
    /// The broker answers again.
    Connected,
    /// The connection broke; it is dialled again until it holds.
    Disconnected,
    /// The broker refused something that was not a request, or dialling failed.
    Refused(String),
}

/// How often somebody who waits for the broker is asked whether to go on.
const ASKED: Duration = Duration::from_millis(200);

/// A connection, and how often it was made.
#[derive(Clone)]
pub struct Connection {
    client: Client,
    context: Context,
    /// Rises with every connection made and every connection lost, so that whoever waits for an answer that
    /// went down with a connection need not wait for the end of its time.
    changes: watch::Receiver<u64>,
}

impl Connection {
    /// [`Connection::open`], as long as `goes_on` says so, which is asked a few times a second; `None` after that.
    pub async fn open_while(
        identity: &Identity,
        name: &str,
        told: impl Fn(Signal) + Send + Sync + 'static,
        goes_on: &mut dyn FnMut() -> bool,
    ) -> Result<Option<Self>, NatsError> {
        let mut dialling = std::pin::pin!(Self::open(identity, name, told));
        while goes_on() {
            if let Ok(connection) = tokio::time::timeout(ASKED, &mut dialling).await {
                return connection.map(Some);
            }
        }
        Ok(None)
    }

    /// Dials until the broker answers; a broker that answers and refuses this member is an error.
    ///
    /// `told` is called with everything that happens to the connection afterwards, too.
    pub async fn open(
        identity: &Identity,
        name: &str,
        told: impl Fn(Signal) + Send + Sync + 'static,
    ) -> Result<Self, NatsError> {
        let tls = identity.tls()?;
        let told = Arc::new(told);
        let (changed, changes) = watch::channel(0);
        let changed = Arc::new(changed);
        let mut attempt = 0;
        loop {
            let (tell, change) = (Arc::clone(&told), Arc::clone(&changed));
            let options = ConnectOptions::new()
                .name(name)
                .tls_client_config(tls.clone())
                .require_tls(true)
                // Addresses a broker mentions are not in its certificate.
                .ignore_discovered_servers()
                .connection_timeout(Duration::from_secs(10))
                .ping_interval(Duration::from_secs(10))
                .request_timeout(Some(ANSWER))
                .max_reconnects(None)
                .reconnect_delay_callback(pause)
                .event_callback(move |event| {
                    let (tell, change) = (Arc::clone(&tell), Arc::clone(&change));
                    async move { pass_on(&event, &*tell, &change) }
                });
            match options.connect(identity.broker.as_str()).await {
                Ok(client) => {
                    // The news of this connection comes later than the connection, and must not be taken for
                    // that of another one.
                    let mut news = changes.clone();
                    let _ = tokio::time::timeout(NEWS, news.wait_for(|count| *count > 0)).await;
                    // Here, because it needs the runtime.
                    let context = jetstream::new(client.clone());
                    return Ok(Self { client, context, changes });
                }
                Err(error) if refused(&error) => {
                    return Err(NatsError::NotAdmitted {
                        broker: identity.broker.clone(),
                        why: chain(&error),
                    });
                }
                Err(error) => {
                    // One line for a broker that is not there yet, not one for each attempt.
                    if attempt == 0 {
                        told(Signal::Refused(format!(
                            "{}: {}; trying again",
                            identity.broker,
                            chain(&error)
                        )));
                    }
                    attempt += 1;
                    tokio::time::sleep(pause(attempt)).await;
                }
            }
        }
    }

    /// The client of the library below.
    pub fn client(&self) -> &Client {
        &self.client
    }

    /// The client's way to publish into streams.
    pub fn context(&self) -> &Context {
        &self.context
    }

    /// A marker of what was seen of the connection until now; see [`Seen::changed`].
    pub fn seen(&self) -> Seen {
        let mut changes = self.changes.clone();
        changes.mark_unchanged();
        Seen(changes)
    }
}

/// A moment in the life of a connection.
pub struct Seen(watch::Receiver<u64>);

impl Seen {
    /// Completes when the connection has changed since that moment.
    pub async fn changed(&mut self) {
        if self.0.changed().await.is_err() {
            std::future::pending::<()>().await;
        }
    }
}

fn pass_on(event: &Event, tell: &(impl Fn(Signal) + ?Sized), change: &watch::Sender<u64>) {
    match event {
        Event::Connected => tell(Signal::Connected),
        Event::Disconnected => tell(Signal::Disconnected),
        Event::ServerError(error) => return tell(Signal::Refused(error.to_string())),
        Event::SlowConsumer(_) => return tell(Signal::Refused("messages were dropped: too slow".into())),
        _ => return,
    }
    change.send_modify(|count| *count += 1);
}

/// The pause before an attempt: doubling, at most two seconds.
fn pause(attempt: usize) -> Duration {
    Duration::from_millis(50 << attempt.min(6)).min(Duration::from_secs(2))
}

/// Whether the broker was there and said no.
fn refused(error: &async_nats::ConnectError) -> bool {
    let said = chain(error).to_lowercase();
    matches!(error.kind(), ConnectErrorKind::Authentication | ConnectErrorKind::AuthorizationViolation)
        || ["certificate", "alert", "unknownissuer"].iter().any(|word| said.contains(word))
}

/// An error with its causes, in one line.
pub(crate) fn chain(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut source = error.source();
    while let Some(cause) = source {
        let cause_text = cause.to_string();
        if !text.contains(&cause_text) {
            text = format!("{text}: {cause_text}");
        }
        source = cause.source();
    }
    text
}
