//! Whether a client's own settings fit the terms of a federation.

use dpsgd::Settings;
use dpsgd::train::Average;

use crate::terms::{Agreed, Bounds};

/// A batch of random size may be this many times as large as expected before the server rejects its update.
const LARGEST_BATCH: f64 = 4.0;

/// The bounds of a federation whose clients have up to `range` times more or less noise than these settings.
pub fn bounds(settings: &Settings, range: f64) -> Result<Bounds, dpsgd::Error> {
    let plan = settings.plan()?;
    let clip = settings.algorithm.clip.start;
    let (mut low, mut high, mut room, mut first) = (f64::INFINITY, 0.0f64, 1.0, 0);
    for phase in settings.mechanism.phases() {
        let deviation = 2.0 * clip * phase.sigma() / plan.divisor(&plan.position(first));
        (low, high) = (low.min(deviation), high.max(deviation));
        if phase.independent_groups() {
            room = LARGEST_BATCH;
        }
        first += phase.rounds();
    }
    Ok(Bounds {
        smallest_deviation: low / range,
        largest_deviation: high * range,
        ..Bounds::of(clip * room, high)
    })
}

/// What the settings do to w that the server, which owns w, would not do: if anything, why it is refused.
pub(crate) fn outside_of_terms(settings: &Settings) -> Option<String> {
    let algorithm = &settings.algorithm;
    if algorithm.weight_decay != 0.0 {
        let given = algorithm.weight_decay;
        return Some(format!(
            "weight-decay = {given}: not in a federation, whose terms do not name one; take 0"
        ));
    }
    (algorithm.average != Average::None).then(|| {
        "average: not in a federation, in which the iterates are the server's; leave it out".to_string()
    })
}

/// Refuses settings whose updates the coordinator would reject, before anything is spent on them.
pub fn check_settings(settings: &Settings, terms: &Agreed) -> Result<(), dpsgd::Error> {
    let refuse = |why: String| Err(dpsgd::Error::Refused(why));
    let plan = settings.plan()?;
    if settings.algorithm.step != terms.step {
        let (own, agreed) = (settings.algorithm.step.start, terms.step.start);
        return refuse(format!("step = {own}: the terms of the federation say {agreed}, with their rule"));
    }
    if let Some(why) = outside_of_terms(settings) {
        return refuse(why);
    }
    if plan.rounds() > terms.rounds {
        let (own, most) = (plan.rounds(), terms.rounds);
        return refuse(format!("rounds = {own}: the terms of the federation allow {most} for each client"));
    }
    let (clip, bounds) = (settings.algorithm.clip.start, terms.bounds);
    if clip > bounds.signal {
        return refuse(format!("clip = {clip}: the terms of the federation allow at most {}", bounds.signal));
    }
    let mut first = 0;
    for phase in settings.mechanism.phases() {
        let deviation = 2.0 * clip * phase.sigma() / plan.divisor(&plan.position(first));
        let (least, most) = (bounds.smallest_deviation, bounds.largest_deviation);
        // The last digits of a calibrated σ are not worth a refusal; the server's check has that slack.
        if deviation < least * (1.0 - 1e-6) || deviation > most * (1.0 + 1e-6) {
            return refuse(format!(
                "sigma = {}: 2Cσ/m = {deviation:.4e} is not between {least:.4e} and {most:.4e}, which the terms \
                 of the federation allow; change sigma (or target-epsilon), groups or clip",
                phase.sigma()
            ));
        }
        first += phase.rounds();
    }
    Ok(())
}
