//! How settings of other crates' types are read from the command line.

use clap::builder::{PossibleValue, PossibleValuesParser, TypedValueParser};
use dpsgd_data::features::Features;
use dpsgd_privacy::Adversary;
use dpsgd_privacy::mechanism::{Neighbours, SamplingKind};

/// A parser of one of the given words, each with what it means.
fn one_of<T: Clone + Send + Sync + 'static>(
    words: &'static [(&'static str, &'static str, T)],
) -> impl TypedValueParser<Value = T> {
    let known = words.iter().map(|(name, help, _)| PossibleValue::new(name).help(help));
    PossibleValuesParser::new(known.collect::<Vec<_>>()).try_map(|given| {
        let found = words.iter().find(|(name, ..)| name.eq_ignore_ascii_case(&given));
        found.map(|(_, _, value)| value.clone()).ok_or("not one of the possible values")
    })
}

/// `--sampling`.
pub(super) fn sampling() -> impl TypedValueParser<Value = SamplingKind> {
    one_of(&[
        ("subsample", "Every round draws a fresh uniform subset", SamplingKind::Subsample),
        ("shuffle", "Every epoch is a permutation cut into rounds", SamplingKind::Shuffle),
        ("poisson", "Every round keeps each sample with probability p", SamplingKind::Poisson),
        ("allocate", "In every epoch each sample draws one of B rounds", SamplingKind::Allocate),
    ])
}

/// `--neighbours`.
pub(super) fn neighbours() -> impl TypedValueParser<Value = Neighbours> {
    one_of(&[
        ("substitute", "Up to g samples are replaced by others", Neighbours::Substitute),
        ("add-remove", "Up to g samples are added or removed (poisson, allocate)", Neighbours::AddRemove),
    ])
}

/// `--adversary`.
pub(super) fn adversary() -> impl TypedValueParser<Value = Adversary> {
    one_of(&[
        ("A0", "Sees the updates only", Adversary::A0),
        ("A1", "Also knows which samples every round used", Adversary::A1),
    ])
}

/// `--features`.
pub(super) fn features() -> impl TypedValueParser<Value = Features> {
    one_of(&[
        (
            "scattering",
            "Fixed wavelets of the image: 81 channels for each of its own, at a quarter of the size",
            Features::Scattering,
        ),
        (
            "scattering-flat",
            "The same as one vector: --normalise private centres and scales every number on its own",
            Features::ScatteringFlat,
        ),
        (
            "random-filters",
            "The response to 512 fixed filters, both signs apart, in 4 × 4 cells of the image",
            Features::RandomFilters,
        ),
        (
            "random-filters-mirrored",
            "The same for the image and its mirror image together, where left and right do not matter",
            Features::RandomFiltersMirrored,
        ),
    ])
}
