//! What somebody may have meant who wrote a name that is not a setting.

/// What other libraries call a setting, and what it is here.
const PEERS: [(&str, &str); 20] = [
    ("batch-size", "groups, the samples of a round where group-size is 1"),
    ("lot-size", "groups, the samples of a round where group-size is 1"),
    ("expected-batch-size", "groups, with sampling = poisson"),
    ("lr", "step"),
    ("learning-rate", "step"),
    ("optimizer", "outer (plain, momentum, adam)"),
    ("max-grad-norm", "clip"),
    ("l2-norm-clip", "clip"),
    ("clipping-norm", "clip"),
    ("max-norm", "clip"),
    ("target-delta", "delta"),
    ("eps", "target-epsilon, for which σ is chosen, or max-epsilon, at which the run stops"),
    ("noise-scale", "noise-multiplier"),
    ("z", "noise-multiplier"),
    ("sample-rate", "rate, with sampling = poisson"),
    ("sampling-rate", "rate, with sampling = poisson"),
    ("steps", "rounds"),
    ("iterations", "rounds"),
    ("num-samples", "samples"),
    ("model", "net"),
];

/// How alike two names must be, of 1, for one to be taken for the other.
const ALIKE: f64 = 0.8;

/// What `given`, which is not a setting, may have meant: another library's name, or a slip.
///
/// ```
/// use dpsgd::settings::suggestion;
/// assert!(suggestion("lr", &[]).unwrap().starts_with("step"));
/// assert_eq!(suggestion("epoch", &["epochs", "epsilon"]).unwrap(), "epochs");
/// assert_eq!(suggestion("nonsense", &["epochs"]), None);
/// ```
pub fn suggestion(given: &str, known: &[&str]) -> Option<String> {
    let given = given.trim_start_matches('-').replace('_', "-").to_lowercase();
    if let Some((_, ours)) = PEERS.iter().find(|(theirs, _)| *theirs == given) {
        return Some(ours.to_string());
    }
    let likeness = |name: &&&str| strsim::jaro_winkler(&given, name);
    let best = known.iter().max_by(|a, b| likeness(a).total_cmp(&likeness(b)))?;
    (likeness(&best) >= ALIKE).then(|| best.to_string())
}

/// The message of the TOML reader about an unknown name, with what may have been meant.
pub(super) fn explained(message: &str) -> String {
    let mut names = message.split('`').skip(1).step_by(2);
    match (message.starts_with("unknown field"), names.next()) {
        (true, Some(given)) => {
            let known: Vec<&str> = names.collect();
            match suggestion(given, &known) {
                Some(ours) => format!("{given} is not a setting; did you mean {ours}?"),
                None => format!("{given} is not a setting; the settings here are {}", known.join(", ")),
            }
        }
        _ => message.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_slip_in_a_file_is_explained() {
        let said = explained("unknown field `epoch`, expected one of `data`, `epochs`, `epsilon`");
        assert_eq!(said, "epoch is not a setting; did you mean epochs?");
        let said = explained("unknown field `batch_size`, expected one of `data`, `groups`");
        assert!(said.contains("did you mean groups"), "{said}");
        let said = explained("unknown field `colour`, expected `data` or `groups`");
        assert_eq!(said, "colour is not a setting; the settings here are data, groups");
        assert_eq!(explained("invalid type"), "invalid type");
    }
}
