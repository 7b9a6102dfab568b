//! The guarantee in words, for a reader who has to decide on it.

use dpsgd_privacy::Adversary;
use dpsgd_privacy::account::Question;
use dpsgd_privacy::mechanism::{Blind, Draw, Mechanism, Neighbours, Phase};

use super::Page;
use crate::rounding::{down, up};
use crate::text::{number, percent, subscript};

/// What is promised, to whom and against whom.
pub fn promise(page: &Page) -> Vec<String> {
    let account = page.account;
    let mut said = Vec::new();
    if page.seeded {
        said.push(
            "This run used a seed: it is reproducible and NOT private. Anyone who knows or guesses the seed \
             can remove the noise. The numbers below are what the same run would guarantee without a seed. \
             This run guarantees nothing: treat its model as you treat the data."
                .to_string(),
        );
    }
    said.push(promise_in_words(&account.mechanism, page.seeded));
    if let Some(given) = account.against(Adversary::A0).or_else(|| account.against(Adversary::A1)) {
        let who = subscript(given.adversary);
        if let Question::Epsilon { delta } = account.question {
            let factor = given.answer.upper.exp();
            let factor = if factor < 1e9 { format!(" = {}", up(factor, 3)) } else { String::new() };
            said.push(format!(
                "As (ε, δ)-differential privacy: ε ≤ {} at δ = {} against {who}. Replacing one data set by \
                 its neighbour changes the probability of any outcome by a factor of at most e^ε{factor}, \
                 apart from a probability of {}.",
                up(given.answer.upper, 4),
                number(delta),
                number(delta)
            ));
        }
        if let Some((alpha, beta)) = given.tradeoff.iter().find(|point| point.0 == 0.01) {
            let alpha = number(100.0 * alpha);
            said.push(format!(
                "As an attack: suppose somebody wants to find out whether a certain sample was used, and \
                 wrongly says yes in {alpha} % of the cases where it was not. Of the cases where it was \
                 used they detect at most {}. A random guess with {alpha} % false alarms detects {alpha} %.",
                percent(*beta),
            ));
        }
    }
    said.push(
        "The table names two attackers. Both see the model and every update. A₁ also knows which samples \
         each round used; A₀ does not. If the order of the data or the state of the sampler could ever \
         leak, rely on A₁."
            .to_string(),
    );
    said
}

fn promise_in_words(mechanism: &Mechanism, seeded: bool) -> String {
    let who = match mechanism.differing() {
        1 => "one sample".to_string(),
        g => format!("up to {g} samples"),
    };
    let how = match mechanism.neighbours() {
        Neighbours::Substitute => "replaced by any other",
        Neighbours::AddRemove => "added or removed",
    };
    let protected = if seeded {
        "Without a seed, every sample of the training data would be protected"
    } else {
        "Every sample of the training data is protected"
    };
    format!(
        "{protected}: if {who} had been {how}, the model, every intermediate update and every metric of this \
         run would look almost the same. The table says how close \"almost\" is. It holds against attackers \
         who know everything else: the rest of the data, the code, all settings, the final model and every \
         update, and who have unlimited computing power."
    )
}

/// Whether N is private: nothing that is published may depend on it then.
fn size_is_private(mechanism: &Mechanism) -> bool {
    mechanism.phases().iter().any(|phase| phase.sampling().population().is_none())
}

/// Whether every phase allocates its samples to the rounds of an epoch.
fn is_allocated(mechanism: &Mechanism) -> bool {
    let allocated = |phase: &Phase| match phase.sampling().blind() {
        Blind::Allocation { .. } => true,
        Blind::Halves | Blind::Line { .. } | Blind::Unsupported { .. } => false,
    };
    mechanism.phases().iter().all(allocated)
}

/// The public constant that sets the batches of samplers that hide N.
fn hidden_sampling(mechanism: &Mechanism) -> &'static str {
    let hidden = |phase: &&Phase| phase.sampling().population().is_none();
    let drawn =
        |draw: Draw| mechanism.phases().iter().filter(hidden).any(|phase| phase.sampling().draw() == draw);
    match (drawn(Draw::EveryRound), drawn(Draw::EveryEpoch)) {
        (true, true) => "sampling rate, the number of rounds in an epoch",
        (false, true) => "number of rounds in an epoch",
        (_, false) => "sampling rate",
    }
}

/// Why the guarantee against an adversary holds, without formulas.
pub fn theorem(mechanism: &Mechanism, adversary: Adversary) -> String {
    let said = match adversary {
        Adversary::A1 => {
            "The sampler determines how often a sample is used, exactly and as a probability distribution. \
             Given that number, what leaks is known exactly, because the noise is Gaussian. The guarantee \
             averages over the distribution (Theorem 2 of the paper)."
        }
        Adversary::A0 if is_allocated(mechanism) => match (mechanism.neighbours(), mechanism.differing()) {
            (Neighbours::AddRemove, 1) => {
                "In each epoch a sample is used in one round, drawn at random, and the attacker does not see \
                 which. What one epoch leaks is known exactly; the guarantee adds up all epochs, numerically \
                 and with certified error."
            }
            _ => {
                "In each epoch a sample is used in one round, drawn at random, and the attacker does not see \
                 which. For these neighbours that is covered by bounds, and the guarantee is the strongest of \
                 them. It is never weaker than the one against A₁."
            }
        },
        Adversary::A0 if size_is_private(mechanism) => {
            "Each round includes a sample only with a small probability, and the attacker does not see \
             whether it did. What one round leaks is known exactly; the guarantee adds up all rounds, \
             numerically and with certified error."
        }
        Adversary::A0 => {
            "Each round uses a small random part of the data, and the attacker does not see which. That \
             bounds what one round leaks; the guarantee adds up all rounds, numerically and with certified \
             error."
        }
    };
    format!("Against {}: {said}", subscript(adversary))
}

/// What the guarantee does not cover, and what it rests on.
pub fn caveats(page: &Page) -> Vec<String> {
    let mechanism = &page.account.mechanism;
    let hidden = size_is_private(mechanism);
    let mut said = vec![
        match mechanism.differing() {
            1 => "The unit is one sample. A person who contributed several samples is protected less: \
                  account for them together with --differing."
                .to_string(),
            g => format!("The unit is a set of up to {g} samples: all samples of one person, for instance."),
        },
        "Choosing settings by looking at other runs on the same private data leaks a little. That is not \
         counted here."
            .to_string(),
        PUBLISHED.to_string(),
        match (&page.private_test, page.unmeasured) {
            (Some(_), _) => "The test set is protected like the training set: what was measured on it is a \
                Gaussian mechanism that the guarantee counts."
                .to_string(),
            (None, Some(_)) => "No test set was measured without noise.".to_string(),
            (None, None) => {
                "The test set counts as public. Accuracy, loss and clipping fraction are measured \
                on it without noise."
                    .to_string()
            }
        },
        if hidden {
            format!(
                "The {} and the divisor of the sum are public constants; neither was computed from \
                 private data.",
                hidden_sampling(mechanism)
            )
        } else {
            "The number of training samples is not hidden: neighbouring data sets have the same \
             number."
                .to_string()
        },
    ];
    if let Some((blind, known)) = page.account.against(Adversary::A0).zip(page.account.against(Adversary::A1))
    {
        let (blind, known) = (blind.answer.upper, known.answer.upper);
        if known > blind && blind > 0.0 {
            said.push(format!(
                "The bound against A₀ relies on keeping the batches secret. Without that secrecy the bound \
                 is {} times as large.",
                down(known / blind, 2)
            ));
        }
    }
    said.push(format!("The noise comes from a cryptographic generator. It is {}.", page.noise));
    said.push("How long the run took is not covered: timing can depend on the data.".to_string());
    if let (Some(note), false) = (&page.note, page.seeded) {
        said.insert(0, format!("Part of this run is {note}."));
    }
    if !mechanism.releases().is_empty() {
        let list: Vec<String> = mechanism.releases().iter().map(|mu| number(*mu)).collect();
        said.push(format!(
            "Also released and included in the guarantee: Gaussian mechanisms with µ = {} for one sample \
             (the private normalisation is one).",
            list.join(", ")
        ));
    }
    said
}

/// Which files of the run may be published.
///
/// The ledger holds counts of rounds and digests of public settings. The checkpoint holds weights, optimizer
/// and schedules, all functions of noised updates, and the time of training only where the number of samples
/// is public.
const PUBLISHED: &str = "You may publish the model, the updates, metrics.jsonl, summary.json, the ledger, \
    the checkpoint and this page. You may not publish diagnostics.jsonl, if there is one: it holds the \
    training loss, which no noise covers. config.toml names the path of the data.";
