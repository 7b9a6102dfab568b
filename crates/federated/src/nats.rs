//! The link over NATS JetStream.
//!
//! | module | what it holds |
//! |---|---|
//! | [`names`] | subjects and streams: who may say what |
//! | [`connection`] | TLS in both directions, reconnection |
//! | [`store`] | the coordinator's end: log, saved state, newest model |
//! | [`coordinator`] | [`Server`](crate::Server) over that end, until it is told to stop |
//! | [`outlet`] | a client's end: updates out, models in |
//! | [`session`] | the link of a client over that end, with flow control |
//! | [`parts`] | frames too large for one message |

pub mod connection;
pub mod coordinator;
pub mod error;
pub mod names;
pub mod outlet;
pub mod parts;
pub mod session;
pub mod store;

pub use connection::{Connection, Identity, Signal};
pub use coordinator::{Habits, Seen, serve};
pub use error::NatsError;
pub use session::Session;
