//! Who may speak on which subject, and what the broker keeps. The broker's configuration and both ends of
//! the link are written from this one table.

pub use crate::wire::pointer::PART;

/// The stream of updates: the log that the coordinator folds.
pub const UPDATES: &str = "updates";
/// The stream that holds the coordinator's last saved state.
pub const STATE: &str = "state";
/// The stream that holds the newest global model.
pub const MODEL: &str = "model";
/// The stream of the parts of states and models too large for one message.
pub const PARTS: &str = "parts";

/// The subject of the saved state.
pub const STATE_SUBJECT: &str = "state.current";
/// The subject of the newest model; clients listen here.
pub const MODEL_SUBJECT: &str = "model.current";
/// The subject on which the coordinator says how far it is.
pub const PULSE_SUBJECT: &str = "model.pulse";
/// A request to this subject is answered by the broker with the newest model.
pub const MODEL_REQUEST: &str = "$JS.API.DIRECT.GET.model.model.current";

/// The account of the coordinator, the only one that can use JetStream.
pub const COORDINATOR_ACCOUNT: &str = "COORDINATOR";
/// The common name in the coordinator's certificate.
pub const COORDINATOR: &str = "coordinator";

/// Bytes of a frame above which it is cut into parts: below the 8 MB of `max_payload`, with room for headers.
pub const WHOLE: usize = 7 << 20;
/// `max_payload` of the broker.
pub const MAX_PAYLOAD: usize = 8 << 20;
/// What the log may hold of all clients' unfolded updates together, as long as a client gets room for four.
const LOG_BYTES: usize = 4 << 30;

/// The account of a client.
pub fn account(client: u64) -> String {
    format!("CLIENT_{client}")
}

/// The common name in a client's certificate.
pub fn member(client: u64) -> String {
    format!("client-{client}")
}

/// Where a client sends its updates.
pub fn update(client: u64) -> String {
    format!("up.{client}")
}

/// The client that sent to a subject.
pub fn sender(subject: &str) -> Option<u64> {
    subject.strip_prefix("up.")?.parse().ok()
}

/// The stream of the parts of a client's large updates. One for each client: a client that floods it
/// pushes out its own parts only.
pub fn update_parts(client: u64) -> String {
    format!("parts-{client}")
}

/// Where a client sends a part of an update.
pub fn update_part(client: u64, place: &str, part: usize) -> String {
    format!("part.{client}.{place}.{part}")
}

/// Where the coordinator keeps a part of a model.
pub fn model_part(place: &str, part: usize) -> String {
    format!("whole.model.{place}.{part}")
}

/// Where the coordinator keeps a part of its state.
pub fn state_part(place: &str, part: usize) -> String {
    format!("whole.state.{place}.{part}")
}

/// The request that makes the broker answer with the last message on a subject of a stream.
pub fn direct_get(stream: &str, subject: &str) -> String {
    format!("$JS.API.DIRECT.GET.{stream}.{subject}")
}

/// The updates of one client that the log takes before they are folded and purged. A client that is
/// further ahead is told to wait; it can take no room from others.
pub fn backlog(clients: u64, frame: usize) -> u64 {
    if frame > WHOLE {
        // The parts of these, and of the one that is being sent, must all be there: see `parts_bytes`.
        return 3;
    }
    let each = LOG_BYTES / (clients.max(1) as usize * frame.max(1));
    each.clamp(4, 64) as u64
}

/// Bytes of the stream of a client's parts: the oldest make room for new ones, and those are folded.
pub fn parts_bytes(frame: usize) -> usize {
    4 * (frame + frame.div_ceil(PART) * 1024) + PART
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_sender_is_a_number_and_nothing_else() {
        assert_eq!(sender(&update(17)), Some(17));
        for subject in ["up.", "up.1.2", "up.x", "up.-1", "down.1", "up.1 "] {
            assert_eq!(sender(subject), None, "{subject}");
        }
    }
}
