//! What the coordinator keeps at the broker: the log of updates, its saved state, the newest model.

use async_nats::jetstream::consumer::{AckPolicy, DeliverPolicy, pull};
use async_nats::jetstream::context::{PublishError, PublishErrorKind};
use async_nats::jetstream::message::PublishMessage;
use async_nats::jetstream::stream::{Config, DiscardPolicy, LastRawMessageErrorKind, StorageType, Stream};
use async_nats::jetstream::{self, Context};
use bytes::Bytes;
use futures_util::{FutureExt, StreamExt};
use std::sync::Arc;
use std::time::Duration;

use super::connection::Connection;
use super::coordinator::{Pulse, client};
use super::error::NatsError;
use super::names::{
    MODEL, MODEL_SUBJECT, PART, PARTS, PULSE_SUBJECT, STATE, STATE_SUBJECT, UPDATES, WHOLE, backlog,
    model_part, parts_bytes, sender, state_part, update_part, update_parts,
};
use super::parts::{Pointer, must_be_cut};
use crate::link::Entry;

/// Marks who saved a state: two coordinators that fold the same log save the same bytes.
const WRITER: &str = "Dpsgd-Writer";
/// Bytes asked of the log at a time: an ordered consumer would ask for more than the broker lets pile up.
const BATCH_BYTES: usize = 16 << 20;
/// The places of states and of models in parts.
const STATE_PLACES: [&str; 2] = ["a", "b"];
const MODEL_PLACES: [&str; 3] = ["a", "b", "c"];
/// Attempts at a write whose outcome the broker does not tell.
const ATTEMPTS: usize = 30;

/// The coordinator's end of the broker.
pub struct Store {
    connection: Connection,
    context: Context,
    updates: Stream,
    state: Stream,
    /// The bytes of the longest update there can be.
    frame: usize,
    /// The sequence, in its stream, of the state that was saved last.
    revision: u64,
    writer: String,
    /// Which of its places the next state in parts goes to: not the one where the saved state is.
    state_place: usize,
    /// The same for models; more places, because slow clients are still reading older ones.
    model_place: usize,
}

impl Store {
    /// Makes the streams, if they are not there.
    ///
    /// Without `keep_log` each client has its own room for this many unfolded updates.
    pub async fn open(
        connection: Connection,
        clients: u64,
        frame: usize,
        keep_log: bool,
    ) -> Result<Self, NatsError> {
        let context = connection.context().clone();
        let kept = |name: &str, subject: &str| Config {
            name: name.into(),
            subjects: vec![subject.into()],
            storage: StorageType::File,
            allow_direct: true,
            ..Default::default()
        };
        let updates = Config {
            max_messages_per_subject: if keep_log { -1 } else { backlog(clients, frame) as i64 },
            discard: DiscardPolicy::New,
            discard_new_per_subject: !keep_log,
            max_message_size: (frame.min(WHOLE) + 4096) as i32,
            deny_delete: true,
            ..kept(UPDATES, "up.*")
        };
        let last = |name, subject| Config { max_messages_per_subject: 1, ..kept(name, subject) };
        let updates = stream(&context, updates).await?;
        let state = stream(&context, last(STATE, STATE_SUBJECT)).await?;
        stream(&context, last(MODEL, MODEL_SUBJECT)).await?;
        stream(&context, last(PARTS, "whole.>")).await?;
        if frame > WHOLE {
            for client in 1..=clients {
                let own = Config {
                    max_bytes: parts_bytes(frame) as i64,
                    max_messages_per_subject: 1,
                    max_message_size: (PART + 4096) as i32,
                    ..kept(&update_parts(client), &format!("part.{client}.>"))
                };
                stream(&context, own).await?;
            }
        }
        let mut id = [0; 16];
        getrandom::fill(&mut id).map_err(|error| NatsError::Broker {
            what: "be given a name for this coordinator".into(),
            why: error.to_string(),
        })?;
        let writer = id.iter().map(|byte| format!("{byte:02x}")).collect();
        let (revision, state_place, model_place) = (0, 0, 0);
        Ok(Self { connection, context, updates, state, frame, revision, writer, state_place, model_place })
    }

    /// The connection.
    pub fn connection(&self) -> &Connection {
        &self.connection
    }

    /// The state that was saved last.
    pub async fn load(&mut self) -> Result<Option<Vec<u8>>, NatsError> {
        let Some((revision, _, payload)) = self.last_state().await? else { return Ok(None) };
        self.revision = revision;
        let Some(pointer) = Pointer::decode(&payload, usize::MAX) else { return Ok(Some(payload.to_vec())) };
        self.state_place = STATE_PLACES.iter().position(|place| **place != pointer.place).unwrap_or(0);
        let whole = pointer.fetch(self.connection.client(), PARTS, state_part).await?;
        whole.map(Some).ok_or_else(|| NatsError::State("parts of it are missing at the broker".into()))
    }

    /// Saves a state in place of the last one that this coordinator loaded or saved.
    ///
    /// # Guarantee
    /// The state is on the broker's disk when this returns, or [`NatsError::Fenced`] says that another
    /// coordinator has saved one since. A write whose answer is lost is looked up, not assumed to have failed.
    pub async fn save(&mut self, state: Vec<u8>) -> Result<u64, NatsError> {
        let payload = self.put(state.into(), STATE_PLACES[self.state_place], state_part).await?;
        self.swap(payload).await?;
        self.state_place = (self.state_place + 1) % STATE_PLACES.len();
        Ok(self.revision)
    }

    async fn swap(&mut self, payload: Bytes) -> Result<(), NatsError> {
        let mut why = String::new();
        for _ in 0..ATTEMPTS {
            let message = PublishMessage::build()
                .payload(payload.clone())
                .header(WRITER, self.writer.as_str())
                .expected_last_subject_sequence(self.revision);
            match self.publish(STATE_SUBJECT, message).await {
                Ok(revision) => {
                    self.revision = revision;
                    return Ok(());
                }
                Err(error) => why = super::connection::chain(&error),
            }
            // Whatever was said, what is there decides.
            match self.last_state().await {
                Ok(Some((revision, writer, there))) if revision != self.revision => {
                    if writer != self.writer || there != payload {
                        return Err(NatsError::Fenced);
                    }
                    self.revision = revision;
                    return Ok(());
                }
                Ok(_) | Err(NatsError::Broker { .. }) => tokio::time::sleep(Duration::from_millis(200)).await,
                Err(other) => return Err(other),
            }
        }
        Err(NatsError::Broker { what: "save the state".into(), why })
    }

    /// Makes a saved model known to all clients, now and to those that ask later.
    ///
    /// It is not waited for: the state holds the model already, and the next one repairs what was lost.
    pub async fn broadcast(&mut self, model: Vec<u8>) -> Result<(), NatsError> {
        let payload = self.put(model.into(), MODEL_PLACES[self.model_place], model_part).await?;
        self.model_place = (self.model_place + 1) % MODEL_PLACES.len();
        let sent = self.context.send_publish(MODEL_SUBJECT, PublishMessage::build().payload(payload)).await;
        sent.map(drop).map_err(|error| NatsError::broker("take the model")(&error))
    }

    /// Waits until everything that was sent has left.
    pub async fn flush(&self) -> Result<(), NatsError> {
        self.connection
            .client()
            .flush()
            .await
            .map_err(|error| NatsError::broker("take the last model")(&error))
    }

    /// Tells all clients how far the log is folded. Lost ones are repaired by the next.
    pub async fn pulse(&self, pulse: &Pulse) -> Result<(), NatsError> {
        // Numbers and texts only, which JSON can always hold.
        let text = serde_json::to_vec(pulse).unwrap_or_default();
        let sent = self.connection.client().publish(PULSE_SUBJECT, text.into()).await;
        sent.map_err(|error| NatsError::broker("take a message")(&error))
    }

    /// Gives back the room of updates that the saved state contains.
    pub async fn purge(&self, through: u64) -> Result<(), NatsError> {
        let purged = self.updates.purge().sequence(through + 1).await;
        purged.map(|_| ()).map_err(|error| NatsError::broker("purge the log")(&error))
    }

    /// The log after a sequence.
    pub async fn follow(&self, after: u64) -> Result<Log, NatsError> {
        let mut updates = self.updates.clone();
        let there = updates.info().await.map_err(|error| NatsError::broker("show the log")(&error))?;
        let first = there.state.first_sequence;
        // The log of a broker that lost its store begins anew: the state knows more than it.
        if first > after + 1 || there.state.last_sequence < after {
            return Err(NatsError::Gap { saved: after, first });
        }
        let config = pull::Config {
            deliver_policy: DeliverPolicy::ByStartSequence { start_sequence: after + 1 },
            ack_policy: AckPolicy::None,
            inactive_threshold: Duration::from_secs(60),
            ..Default::default()
        };
        let consumer = self.updates.create_consumer(config).await;
        let consumer = consumer.map_err(|error| NatsError::broker("read the log")(&error))?;
        let messages = consumer
            .stream()
            .max_bytes_per_batch(BATCH_BYTES)
            .expires(Duration::from_secs(30))
            .heartbeat(Duration::from_secs(5))
            .messages()
            .await;
        let messages = messages.map_err(|error| NatsError::broker("read the log")(&error))?;
        Ok(Log { arrived: None, messages, frame: self.frame, connection: self.connection.clone() })
    }

    /// Stores parts of what does not fit into a message, and gives what to put into one.
    async fn put(
        &self,
        frame: Bytes,
        place: &str,
        subject: fn(&str, usize) -> String,
    ) -> Result<Bytes, NatsError> {
        if !must_be_cut(&frame) {
            return Ok(frame);
        }
        let pointer = Pointer::to(&frame, Some(place));
        let sends = futures_util::stream::iter(0..pointer.parts()).map(|part| {
            let bytes = frame.slice(part * PART..frame.len().min((part + 1) * PART));
            let subject = subject(&pointer.place, part);
            async move { self.publish(&subject, PublishMessage::build().payload(bytes)).await }
        });
        let mut sends = sends.buffer_unordered(8);
        while let Some(sent) = sends.next().await {
            sent.map_err(|error| NatsError::broker("store a part")(&error))?;
        }
        Ok(pointer.encode().into())
    }

    async fn publish(&self, subject: &str, message: PublishMessage) -> Result<u64, PublishError> {
        let mut seen = self.connection.seen();
        let sent = self.context.send_publish(subject.to_string(), message).await?;
        tokio::select! {
            answer = sent => answer.map(|answer| answer.sequence),
            () = seen.changed() => Err(PublishError::new(PublishErrorKind::BrokenPipe)),
        }
    }

    /// The sequence, the writer and the payload of the saved state. Never from a cache or a follower.
    async fn last_state(&self) -> Result<Option<(u64, String, Bytes)>, NatsError> {
        match self.state.get_last_raw_message_by_subject(STATE_SUBJECT).await {
            Ok(found) => {
                let writer = found.headers.get(WRITER).map(|value| value.to_string()).unwrap_or_default();
                Ok(Some((found.sequence, writer, found.payload)))
            }
            Err(error) if matches!(error.kind(), LastRawMessageErrorKind::NoMessageFound) => Ok(None),
            Err(error) => Err(NatsError::broker("show the saved state")(&error)),
        }
    }
}

async fn stream(context: &Context, config: Config) -> Result<Stream, NatsError> {
    let what = format!("make the stream {}", config.name);
    let name = config.name.clone();
    context.create_or_update_stream(config).await.map_err(|error| NatsError::broker(&what)(&error))?;
    context.get_stream(name).await.map_err(|error| NatsError::broker(&what)(&error))
}

/// The log as it grows.
pub struct Log {
    messages: pull::Stream,
    /// What was taken from the messages and has not been read yet.
    arrived: Option<Option<Result<jetstream::Message, pull::MessagesError>>>,
    frame: usize,
    connection: Connection,
}

impl Log {
    /// Waits for the next entry, and leaves it to [`Log::next`]. Nothing is lost if the wait is given up.
    pub async fn arrives(&mut self) {
        if self.arrived.is_none() {
            self.arrived = Some(self.messages.next().await);
        }
    }

    /// The next entry, waiting for it. This must not be given up half-way: the entry would be lost.
    pub async fn next(&mut self) -> Result<Entry, NatsError> {
        self.arrives().await;
        let found = self.arrived.take().flatten();
        self.entry(found).await
    }

    /// The next entry, if it has arrived.
    pub async fn ready(&mut self) -> Option<Result<Entry, NatsError>> {
        self.arrives().now_or_never()?;
        let found = self.arrived.take().flatten();
        Some(self.entry(found).await)
    }

    async fn entry(
        &self,
        found: Option<Result<jetstream::Message, pull::MessagesError>>,
    ) -> Result<Entry, NatsError> {
        let ended = |why: String| NatsError::Broker { what: "go on with the log".into(), why };
        let message = match found {
            Some(Ok(message)) => message,
            Some(Err(error)) => return Err(ended(super::connection::chain(&error))),
            None => return Err(ended("it ended".into())),
        };
        let sequence = message.info().map_err(|error| ended(error.to_string()))?.stream_sequence;
        let sender = sender(&message.subject);
        let mut bytes = message.payload.clone();
        if let (Some(client), Some(pointer)) = (sender, Pointer::decode(&bytes, self.frame)) {
            let subject = |place: &str, part| update_part(client, place, part);
            let whole = pointer.fetch(self.connection.client(), &update_parts(client), subject).await?;
            // Without its parts the pointer is what it is: a frame that the fold refuses.
            bytes = whole.map_or(bytes, Bytes::from);
        }
        Ok(Entry { sequence, sender: client(sender), bytes: Arc::from(&bytes[..]) })
    }
}
