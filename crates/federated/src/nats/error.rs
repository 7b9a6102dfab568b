//! Why something over the broker did not work.

/// Why something over the broker did not work.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum NatsError {
    /// The file of a member does not hold what TLS needs.
    #[error("{what} in the member's file: {why}; use the file as `dpsgd federation init` wrote it")]
    Credentials {
        /// Which part.
        what: String,
        /// Why it cannot be used.
        why: String,
    },
    /// The broker, or this member, did not accept the other's certificate.
    #[error("{broker} and this member do not know each other: {why}; both files must come from one set-up")]
    NotAdmitted {
        /// The broker.
        broker: String,
        /// What was said.
        why: String,
    },
    /// The broker did not do what was asked.
    #[error("the broker could not {what}: {why}")]
    Broker {
        /// What was asked.
        what: String,
        /// What it said.
        why: String,
    },
    /// Another coordinator has saved a state after ours.
    #[error("another coordinator has taken over this run; this one must stop, and has changed nothing since")]
    Fenced,
    /// The log does not go on where the saved state ends.
    #[error(
        "the log goes on at {first}, but the saved state ends at {saved}: the updates between them are gone. \
         Restore the broker's store from one backup, state and log together, or begin a new run"
    )]
    Gap {
        /// The state's sequence.
        saved: u64,
        /// The first sequence there is.
        first: u64,
    },
    /// The coordinator does not want this client's updates.
    #[error(
        "the coordinator has refused {count} updates of this client ({reasons}); stopped, so that no more \
         privacy is spent on them. Compare this client's settings with the terms"
    )]
    Refused {
        /// How many.
        count: u64,
        /// Why.
        reasons: String,
    },
    /// The saved state, or the model, cannot be read.
    #[error("what the broker holds cannot be used: {0}")]
    State(String),
}

impl NatsError {
    pub(crate) fn broker(what: &str) -> impl FnOnce(&dyn std::error::Error) -> Self + '_ {
        move |error| NatsError::Broker { what: what.into(), why: super::connection::chain(error) }
    }
}
