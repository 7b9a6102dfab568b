//! Algorithm 1 between many clients and a server.
//!
//! Each client trains on its own private data with the production [`Trainer`](dpsgd::train::Trainer), sends
//! every noised update Ū/m, and lets any newly received global model replace w. The server folds updates into
//! the global model and broadcasts it. Everything is asynchronous; broadcasts may be late, out of order,
//! repeated or lost.
//!
//! | module | what it holds |
//! |---|---|
//! | [`terms`] | what everybody agrees on |
//! | [`wire`] | the bytes that travel: update, model, saved state |
//! | [`coordinator`], [`state`] | the server as a deterministic fold over the log of updates |
//! | [`honest`], [`window`], [`Reject`] | what the server checks, since it trusts nobody |
//! | [`client`] | the client's side, beside its trainer |
//! | [`admission`] | whether a client's settings fit the terms |
//! | [`participant`], [`outbox`] | a client at its site: trainer, ledger, outbox, pace |
//! | [`visit`] | a client that is called, performs the rounds a message asks for, and answers |
//! | [`link`] | what the core asks of a transport |
//! | [`memory`] | the link inside one process |
//! | [`server`] | fold, save, publish over any link |
//! | `nats`, `setup`, `site` | with the feature `nats`: the link over NATS JetStream, the files of its members |
//! | `serving`, `joining` | with the same feature: the commands `dpsgd serve` and `dpsgd join` without their terminal |
//! | [`status`], [`timeline`], [`report`], [`chronicle`] | how a coordinator stands, for people |
//! | [`attendance`] | how a client stands, for people |
//! | [`browse`] | both, for a page |
//! | [`tester`] | models on the public test set, beside the fold |
//! | [`federate`] | a data set divided among simulated clients: the command `dpsgd federate` |
//! | [`simulate`] | a whole federation in one process, on a virtual clock |

pub mod admission;
pub mod attendance;
pub mod browse;
pub mod chronicle;
pub mod client;
pub mod coordinator;
pub mod federate;
pub mod honest;
#[cfg(feature = "nats")]
pub mod joining;
pub mod link;
pub mod memory;
mod name;
#[cfg(feature = "nats")]
pub mod nats;
pub mod outbox;
pub mod participant;
mod reject;
pub mod report;
pub mod server;
#[cfg(feature = "nats")]
pub mod serving;
#[cfg(feature = "nats")]
pub mod setup;
pub mod simulate;
#[cfg(feature = "nats")]
pub mod site;
pub mod state;
pub mod status;
pub mod terms;
pub mod tester;
pub mod timeline;
pub mod visit;
pub mod window;
pub mod wire;

pub use client::{Client, Outgoing, Verdict};
pub use coordinator::{Coordinator, Gap, Outcome};
pub use link::{ClientLink, Entry, Revision, SaveError, ServerLink};
pub use memory::Memory;
pub use name::{ClientId, NotARun, RunId};
pub use participant::{Conduct, Participant, Receiver};
pub use reject::Reject;
pub use server::{Server, ServerError};
pub use state::{Standing, State};
pub use terms::{Agreed, Bounds, Combine, Rule, ServerOuter, Staleness, Terms, TermsError};
pub use visit::Visit;
pub use window::Window;
pub use wire::{Model, Update};
