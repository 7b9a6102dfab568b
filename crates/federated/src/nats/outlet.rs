//! What a client does at the broker: send updates, receive models.

use std::time::Duration;

use async_nats::Subscriber;
use async_nats::jetstream::context::{Context, PublishErrorKind};
use async_nats::jetstream::message::PublishMessage;
use bytes::Bytes;
use futures_util::{FutureExt, StreamExt};

use super::connection::Connection;
use super::error::NatsError;
use super::names::{
    MODEL_REQUEST, MODEL_SUBJECT, PART, PARTS, PULSE_SUBJECT, model_part, update, update_part,
};
use super::parts::{Pointer, missing, must_be_cut};

/// The code of the broker's answer to a client that is too far ahead of the coordinator.
const TOO_FAR_AHEAD: &str = "10077";

/// A client's end of the broker.
pub struct Outlet {
    connection: Connection,
    context: Context,
    client: u64,
}

/// What became of an update.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Sent {
    /// It is in the log, on the broker's disk, at this place.
    Logged(u64),
    /// The broker has seen its name before, and did not log it.
    Repeated,
    /// The log holds as many of this client's updates as it takes before they are folded: wait.
    Wait,
    /// The broker did not take it, or its answer was lost: send the same bytes under the same name again.
    Unknown(String),
}

impl Outlet {
    /// The end of client `client`.
    pub fn new(connection: Connection, client: u64) -> Self {
        let context = connection.context().clone();
        Self { connection, context, client }
    }

    /// The connection.
    pub fn connection(&self) -> &Connection {
        &self.connection
    }

    /// Sends an update once. `name` is random and the same for every attempt at one update, so that the
    /// broker can drop the second of two that arrived.
    ///
    /// # Guarantee
    /// The log holds the update when it says so. Names are those of the whole log: the broker also drops an
    /// update whose name somebody else has used. So what it takes for a repetition is sent again without a name;
    /// if it was one, the fold rejects it as replayed.
    pub async fn send(&self, name: &str, frame: Bytes) -> Sent {
        let payload = if must_be_cut(&frame) {
            match self.send_parts(&frame).await {
                Ok(pointer) => pointer.encode().into(),
                Err(unknown) => return unknown,
            }
        } else {
            frame
        };
        let message = PublishMessage::build().payload(payload.clone()).message_id(name);
        match self.publish(update(self.client), message).await {
            Sent::Repeated => {
                self.publish(update(self.client), PublishMessage::build().payload(payload)).await
            }
            sent => sent,
        }
    }

    async fn send_parts(&self, frame: &Bytes) -> Result<Pointer, Sent> {
        let pointer = Pointer::to(frame, None);
        let sends = futures_util::stream::iter(0..pointer.parts()).map(|part| {
            let bytes = frame.slice(part * PART..frame.len().min((part + 1) * PART));
            let subject = update_part(self.client, &pointer.place, part);
            self.publish(subject, PublishMessage::build().payload(bytes))
        });
        let mut sends = std::pin::pin!(sends.buffer_unordered(4));
        while let Some(sent) = sends.next().await {
            if !matches!(sent, Sent::Logged(_)) {
                return Err(sent);
            }
        }
        Ok(pointer.clone())
    }

    async fn publish(&self, subject: String, message: PublishMessage) -> Sent {
        let mut seen = self.connection.seen();
        let sent = match self.context.send_publish(subject, message).await {
            Ok(sent) => sent,
            Err(error) => return Sent::Unknown(super::connection::chain(&error)),
        };
        let answer = tokio::select! {
            answer = sent => answer,
            () = seen.changed() => return Sent::Unknown("the connection broke".into()),
        };
        match answer {
            Ok(answer) if answer.duplicate => Sent::Repeated,
            Ok(answer) => Sent::Logged(answer.sequence),
            Err(error) => {
                let said = super::connection::chain(&error);
                let ahead = error.kind() == PublishErrorKind::Other && said.contains(TOO_FAR_AHEAD);
                if ahead { Sent::Wait } else { Sent::Unknown(said) }
            }
        }
    }

    /// The models as they come. Subscribed once: the library subscribes again after every reconnection.
    pub async fn models(&self) -> Result<Models, NatsError> {
        Ok(Models { subscriber: self.subscribe(MODEL_SUBJECT).await? })
    }

    /// How far the coordinator is, as it says so.
    pub async fn pulses(&self) -> Result<Models, NatsError> {
        Ok(Models { subscriber: self.subscribe(PULSE_SUBJECT).await? })
    }

    async fn subscribe(&self, subject: &'static str) -> Result<Subscriber, NatsError> {
        let subscriber = self.connection.client().subscribe(subject).await;
        subscriber.map_err(|error| NatsError::broker("send models")(&error))
    }

    /// The newest model, or `None` before there is one.
    pub async fn newest(&self) -> Result<Option<Bytes>, NatsError> {
        let asked = self.connection.client().request(MODEL_REQUEST, Bytes::new());
        let mut seen = self.connection.seen();
        let answer = tokio::select! {
            answer = asked => answer.map_err(|error| NatsError::broker("send the newest model")(&error))?,
            () = seen.changed() => {
                let why = "the connection broke".into();
                return Err(NatsError::Broker { what: "send the newest model".into(), why });
            }
        };
        Ok((!missing(&answer)).then_some(answer.payload))
    }

    /// A model's bytes, from a payload that may be a pointer to them. `None` if they are gone: a newer model
    /// is there.
    pub async fn whole(&self, payload: Bytes, limit: usize) -> Result<Option<Bytes>, NatsError> {
        match Pointer::decode(&payload, limit) {
            Some(pointer) => {
                let whole = pointer.fetch(self.connection.client(), PARTS, model_part).await?;
                Ok(whole.map(Bytes::from))
            }
            None => Ok(Some(payload)),
        }
    }

    /// A pause before another attempt.
    pub async fn pause(&self) {
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
}

/// Models as the coordinator sends them.
pub struct Models {
    subscriber: Subscriber,
}

impl Models {
    /// The next one, none left out.
    pub async fn each(&mut self) -> Option<Bytes> {
        self.subscriber.next().await.map(|message| message.payload)
    }

    /// The newest that has arrived; those before it are dropped unread. `None` when the connection is closed.
    pub async fn next(&mut self) -> Option<Bytes> {
        let mut newest = self.subscriber.next().await?;
        while let Some(Some(newer)) = self.subscriber.next().now_or_never() {
            newest = newer;
        }
        Some(newest.payload)
    }
}
