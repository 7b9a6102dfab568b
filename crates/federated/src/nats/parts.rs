//! Frames too large for one message: cut into parts, each under a subject of its own, and a pointer to them.
//!
//! This is what an object store does, without its metadata: a part is named by a place and its number, so one
//! request gets it, and a reader that has all of them can check them against the digest in the pointer. Places
//! are used again, so that a crash leaves nothing behind that has to be found and removed.

use async_nats::{Client, Message};
use bytes::Bytes;
use futures_util::stream::{StreamExt, TryStreamExt, iter};

use super::error::NatsError;
use super::names::{WHOLE, direct_get};
pub use crate::wire::pointer::Pointer;

/// Parts in flight: half of what the broker lets pile up for a connection before it cuts it off.
const WINDOW: usize = 32;

impl Pointer {
    /// Gets all parts. `None` if one is gone, or if together they are not what the pointer promised.
    pub async fn fetch(
        &self,
        client: &Client,
        stream: &str,
        subject: impl Fn(&str, usize) -> String,
    ) -> Result<Option<Vec<u8>>, NatsError> {
        let requests = iter(0..self.parts()).map(|part| {
            let request = direct_get(stream, &subject(&self.place, part));
            async move {
                let answer = client.request(request, Bytes::new()).await;
                answer.map_err(|error| NatsError::broker("send a part")(&error))
            }
        });
        let mut answers = requests.buffered(WINDOW);
        // A pointer may promise more than there is: room is made as parts come.
        let mut frame = Vec::new();
        while let Some(answer) = answers.try_next().await? {
            if missing(&answer) || frame.len() + answer.payload.len() > self.bytes {
                return Ok(None);
            }
            frame.extend_from_slice(&answer.payload);
        }
        Ok(self.is_of(&frame).then_some(frame))
    }
}

/// Whether a frame must be cut.
pub fn must_be_cut(frame: &[u8]) -> bool {
    frame.len() > WHOLE
}

/// Whether the broker answered that there is no such message.
pub fn missing(answer: &Message) -> bool {
    answer.status.is_some()
}
