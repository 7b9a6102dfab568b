//! The guarantee in words, for a reader who has to decide on it.

use dpsgd_privacy::Adversary;
use dpsgd_privacy::mechanism::{Neighbours, Sampling};

use super::Page;
use crate::rounding::{down, up};
use crate::settings::{Question, number};
use crate::statement::{percent, subscript};

/// What is promised, to whom and against whom.
pub fn promise(page: &Page) -> Vec<String> {
    let report = page.account;
    let mechanism = &report.run.mechanism;
    let g = mechanism.differing();
    let mut said = Vec::new();
    if page.seeded {
        said.push(
            "This run was made with a seed: it is reproducible, and NOT private. Whoever knows or guesses the \
             seed can take the noise away. The numbers below are what the same run without a seed would \
             guarantee; this run guarantees nothing, and its model must not leave where the data may not."
                .to_string(),
        );
    }
    let who = if g == 1 { "one sample".to_string() } else { format!("up to {g} samples") };
    let how = match mechanism.neighbours() {
        Neighbours::Substitute => "replaced by any other",
        Neighbours::AddRemove => "added or removed",
    };
    said.push(format!(
        "The promise is to each single sample of the training data: if {who} had been {how}, the model, every \
         intermediate update and every metric of this run would have looked almost the same. Almost is what the \
         table measures. It holds against an attacker who knows everything else: the rest of the data, the code, \
         all settings, the final model and every update on the way to it, with unlimited computing power."
    ));
    if let Some(given) = report.against(Adversary::A0).or_else(|| report.against(Adversary::A1)) {
        let who = subscript(given.adversary);
        if let Question::Epsilon { delta } = report.run.question {
            let factor = given.answer.upper.exp();
            let factor =
                if factor < 1e9 { format!(" (a factor e^ε ≤ {})", up(factor, 3)) } else { String::new() };
            said.push(format!(
                "In the usual terms: the run is (ε, δ)-differentially private with ε ≤ {} and δ = {} against {who}. \
                 No outcome is more than e^ε times as likely{factor} with one data set as with its neighbour, but \
                 for outcomes of a total probability of {}.",
                up(given.answer.upper, 4),
                number(delta),
                number(delta)
            ));
        }
        if let Some((alpha, beta)) = given.tradeoff.iter().find(|point| point.0 == 0.01) {
            said.push(format!(
                "In the terms of an attack: whoever wants to find out whether a certain sample was used, and accepts \
                 to accuse wrongly in {} % of the cases, is right in at most {} of the cases in which it was. A blind \
                 guess is right in {} %.",
                number(100.0 * alpha),
                percent(*beta),
                number(100.0 * alpha)
            ));
        }
    }
    said.push(
        "There are two attackers. A₀ sees the updates and the model but not which samples a round drew: it is the \
         attacker of the literature. A₁ is also told which samples every round drew. If the order of the data or the \
         state of the sampler could ever leak, A₁ is the one to plan for."
            .to_string(),
    );
    said
}

/// What the guarantee does not cover.
pub fn caveats(page: &Page) -> Vec<String> {
    let run = &page.account.run;
    let mechanism = &run.mechanism;
    let mut said = vec![
        match mechanism.differing() {
            1 => "The unit is one sample. A person who contributed several samples is protected less: account for \
                  them together with --differing."
                .to_string(),
            g => format!("The unit is a set of up to {g} samples, for instance all of one person."),
        },
        "Settings that were chosen by looking at other runs on the same private data have leaked a little \
         through that choice. That is not counted here."
            .to_string(),
        "The model, the updates, metrics.jsonl, summary.json and this page may be published. diagnostics.jsonl, \
         if there is one, may not: it holds the training loss, which no noise covers. The checkpoint and the \
         ledger are for resuming, not for publishing."
            .to_string(),
        "The test set is taken to be public. Accuracy, loss and clipping fraction are measured on it."
            .to_string(),
    ];
    let poisson = mechanism.phases().iter().any(|phase| matches!(phase.sampling(), Sampling::Poisson { .. }));
    said.push(if poisson {
        "The rate of sampling and the divisor of the sum are public constants; neither was computed from private \
         data."
            .to_string()
    } else {
        "The number of training samples is not hidden: neighbours by substitution have the same number."
            .to_string()
    });
    if let Some(given) = page.account.against(Adversary::A0).zip(page.account.against(Adversary::A1)) {
        let (blind, known) = (given.0.answer.upper, given.1.answer.upper);
        if known > blind && blind > 0.0 {
            said.push(format!(
                "The bound against A₀ rests on the secrecy of the batches: without it the bound is {} times as large.",
                down(known / blind, 2)
            ));
        }
    }
    said.push(format!(
        "The noise is drawn from a cryptographic generator. It is {}. Attacks on the time a run takes are outside \
         the guarantee.",
        page.noise.covers()
    ));
    if let (Some(note), false) = (&page.note, page.seeded) {
        said.insert(0, format!("A part of this run is {note}."));
    }
    if !mechanism.releases().is_empty() {
        let list: Vec<String> = mechanism.releases().iter().map(|mu| number(*mu)).collect();
        said.push(format!(
            "Also released and counted: Gaussian mechanisms with µ = {} (the private normalisation is one).",
            list.join(", ")
        ));
    }
    said
}
