//! Which of the last iterate and the average is the model.

use dpsgd_report::run::{ChosenBy, Iterate, Iterates, Reached};

use crate::evaluation::Evaluation;
use crate::settings::Choose;

/// What the model reaches, and both iterates where there are two.
///
/// # Guarantee
/// Both iterates are functions of noised updates, and what was measured is of public samples: whichever is
/// chosen, it costs no privacy.
pub(super) fn chosen(
    choose: Choose,
    last: Evaluation,
    average: Option<Evaluation>,
) -> (Evaluation, Option<Iterates>) {
    let Some(average) = average else { return (last, None) };
    let (chosen, by) = match choose {
        Choose::Average => (Iterate::Average, ChosenBy::Rule),
        Choose::Last => (Iterate::Last, ChosenBy::Rule),
        Choose::Better if better(&last, &average) => (Iterate::Last, ChosenBy::PublicTest),
        Choose::Better => (Iterate::Average, ChosenBy::PublicTest),
    };
    let reached = |seen: &Evaluation| Reached { test_loss: seen.loss, test_accuracy: seen.accuracy };
    let iterates = Iterates { chosen, by, last: reached(&last), average: reached(&average) };
    (if chosen == Iterate::Last { last } else { average }, Some(iterates))
}

/// Whether `one` is better than `other`: more accurate, or, where that says nothing, of a smaller loss.
fn better(one: &Evaluation, other: &Evaluation) -> bool {
    match (one.accuracy, other.accuracy) {
        (Some(one), Some(other)) if one != other => one > other,
        _ => one.loss < other.loss,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_rule_decides_unless_the_test_is_to() {
        let seen = |loss, accuracy| Evaluation { loss, accuracy, ..Evaluation::default() };
        let (worse, good) = (seen(0.2, Some(0.8)), seen(0.3, Some(0.9)));
        for (choose, last, average, expected) in [
            (Choose::Average, good, worse, Iterate::Average),
            (Choose::Last, worse, good, Iterate::Last),
            (Choose::Better, worse, good, Iterate::Average),
            (Choose::Better, good, worse, Iterate::Last),
            (Choose::Better, seen(0.1, None), seen(0.2, None), Iterate::Last),
            // In doubt, the average: also where nothing is a number.
            (Choose::Better, seen(f64::NAN, None), seen(0.2, None), Iterate::Average),
        ] {
            let (told, both) = chosen(choose, last, Some(average));
            let both = both.unwrap();
            assert_eq!(both.chosen, expected);
            assert_eq!(both.by == ChosenBy::PublicTest, choose == Choose::Better);
            assert_eq!(
                told.accuracy,
                if expected == Iterate::Last { last.accuracy } else { average.accuracy }
            );
        }
        assert_eq!(chosen(Choose::Average, good, None), (good, None));
    }
}
