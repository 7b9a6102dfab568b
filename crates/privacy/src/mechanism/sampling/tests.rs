//! Every answer of every sampler, in tables.

use super::*;

const SUBSAMPLE: Sampling = Sampling::Subsample { samples: 103, groups: 5, group_size: 4 };
const SHUFFLE: Sampling = Sampling::Shuffle { samples: 103, groups: 5, group_size: 4 };
const POISSON: Sampling = Sampling::Poisson { rate: 0.03 };
const ALLOCATE: Sampling = Sampling::Allocate { rounds: 40 };
const CELLS: Sampling = Sampling::AllocateCells { rounds: 40, groups: 3, group_size: 7 };
const SIZES: FixedSizes = FixedSizes { samples: 103, groups: 5, group_size: 4 };

/// The answers of the samplers in the order of [`SamplingKind::ALL`], the cells of the last one at the end.
fn answers<T>(question: impl Fn(&Sampling) -> T) -> [T; 5] {
    [SUBSAMPLE, SHUFFLE, POISSON, ALLOCATE, CELLS].map(|sampling| question(&sampling))
}

#[test]
fn every_kind_is_in_the_table() {
    let kinds = answers(Sampling::kind);
    assert_eq!((&kinds[..4], kinds[4]), (&SamplingKind::ALL[..], SamplingKind::Allocate));
    assert_eq!(answers(Sampling::name), ["subsample", "shuffle", "poisson", "allocate", "allocate"]);
}

#[test]
fn sizes_and_lengths() {
    assert_eq!(answers(Sampling::sizes), [Some(SIZES), Some(SIZES), None, None, None]);
    assert_eq!(SIZES.batch(), 20);
    assert_eq!(answers(Sampling::rounds_per_epoch), [5, 5, 33, 40, 40]);
    assert_eq!(answers(|s| s.epochs(15)), [3.0, 3.0, 15.0 * 0.03, 15.0 / 40.0, 15.0 / 40.0]);
    assert_eq!(answers(Sampling::share_of_data), [20.0 / 103.0, 20.0 / 103.0, 0.03, 0.025, 0.025]);
    assert_eq!(answers(Sampling::population), [Some(103), Some(103), None, None, None]);
    let fixed = BatchSize::Fixed { groups: 5, group_size: 4 };
    let random = |rate| BatchSize::Random { rate };
    let cells = BatchSize::Cells { groups: 3, rate: 0.025 };
    assert_eq!(answers(Sampling::batch), [fixed, fixed, random(0.03), random(0.025), cells]);
    assert_eq!(answers(Sampling::group_size), [4, 4, 1, 1, 7]);
    assert_eq!(answers(Sampling::groups), [Some(5), Some(5), None, None, Some(3)]);
}

/// A rate computed as m/N has as many rounds per epoch as m out of N.
#[test]
fn a_rate_that_was_a_quotient_is_not_a_round_short() {
    for (groups, samples) in [(64u64, 64 * 49), (3, 147), (10, 490), (7, 7 * 1_000_003)] {
        let rate = groups as f64 / samples as f64;
        assert_eq!(Sampling::Poisson { rate }.rounds_per_epoch(), samples / groups);
    }
}

#[test]
fn what_privacy_depends_on() {
    let (round, epoch) = (Draw::EveryRound, Draw::EveryEpoch);
    assert_eq!(answers(Sampling::draw), [round, epoch, round, epoch, epoch]);
    assert_eq!(answers(Sampling::independent_groups), [false, false, true, true, false]);
    assert_eq!(answers(Sampling::shares_groups), [true, true, false, false, true]);
    let groups = Divisor::Groups(5);
    let constant = Divisor::PublicConstant;
    assert_eq!(answers(Sampling::divisor), [groups, groups, constant, constant, Divisor::Groups(3)]);
    let (substitute, add_remove) = (Neighbours::Substitute, Neighbours::AddRemove);
    assert_eq!(
        answers(Sampling::usual_neighbours),
        [substitute, substitute, add_remove, add_remove, add_remove]
    );
    assert_eq!(answers(|s| s.allows(substitute).is_ok()), [true; 5]);
    assert_eq!(answers(|s| s.allows(add_remove).is_ok()), [false, false, true, true, true]);
    assert_eq!(answers(|s| s.allows_filter().is_ok()), [true, true, false, true, true]);
    assert_eq!(answers(|s| s.allows(s.usual_neighbours()).is_ok()), [true; 5]);
}

#[test]
fn laws_and_pairs() {
    let subset = RoundDraw::Subset(SIZES);
    let each = |rate| RoundDraw::EachSample { rate };
    let cells = RoundDraw::Cells { rate: 0.025, groups: 3 };
    assert_eq!(answers(Sampling::round), [subset, subset, each(0.03), each(0.025), cells]);
    let epochs = Independent::Epochs(EpochDraw::Permutation(SIZES));
    let allocated = |cells| Independent::Epochs(EpochDraw::Allocation { rounds: 40, cells });
    let rounds = Independent::Rounds;
    let expected = [rounds, epochs, rounds, allocated(None), allocated(Some(3))];
    assert_eq!(answers(Sampling::independent), expected);
    let blind = answers(Sampling::blind);
    assert_eq!((blind[0], blind[2]), (Blind::Halves, Blind::Line { rate: 0.03 }));
    assert_eq!((blind[3], blind[4]), (Blind::Allocation { rounds: 40 }, Blind::Allocation { rounds: 40 }));
    assert!(matches!(blind[1], Blind::Unsupported { .. }));
    let absent = PaperForms::Absent;
    let forms = [PaperForms::Subsampled(SIZES), PaperForms::Shuffled(SIZES), absent, absent, absent];
    assert_eq!(answers(Sampling::paper_forms), forms);
}

/// Rounds are dependent exactly where a draw is shared by an epoch.
#[test]
fn draws_and_laws_agree() {
    for sampling in [SUBSAMPLE, SHUFFLE, POISSON, ALLOCATE, CELLS] {
        let by_epoch = matches!(sampling.independent(), Independent::Epochs(_));
        assert_eq!(sampling.draw() == Draw::EveryEpoch, by_epoch, "{sampling:?}");
        let fixed = matches!(sampling.batch(), BatchSize::Fixed { .. });
        assert_eq!(sampling.sizes().is_some(), fixed);
        let random = matches!(sampling.batch(), BatchSize::Random { .. });
        assert_eq!(sampling.independent_groups(), random);
        assert_eq!(sampling.shares_groups(), !random);
        assert_eq!(matches!(sampling.divisor(), Divisor::PublicConstant), random);
        assert_eq!(sampling.population().is_some(), fixed);
        // Where N may differ between neighbours it must not be part of the mechanism.
        assert!(sampling.allows(Neighbours::AddRemove).is_err() || sampling.population().is_none());
    }
}

#[test]
fn other_sizes() {
    let named = |samples, groups, group_size| {
        [
            Sampling::Subsample { samples, groups, group_size },
            Sampling::Shuffle { samples, groups, group_size },
        ]
    };
    assert_eq!([SUBSAMPLE, SHUFFLE].map(|s| s.with_groups(7).unwrap()), named(103, 7, 4));
    assert_eq!(POISSON.with_groups(7).unwrap_err().name, "groups");
    assert_eq!([SUBSAMPLE, SHUFFLE].map(|s| s.with_fewer_rounds(2)), named(2 * 20 + 3, 5, 4));
    assert_eq!([SUBSAMPLE, SHUFFLE].map(|s| s.with_fewer_rounds(9)), [SUBSAMPLE, SHUFFLE]);
    assert_eq!(POISSON.with_fewer_rounds(4), Sampling::Poisson { rate: 0.25 });
    assert_eq!(POISSON.with_fewer_rounds(40), POISSON);
    assert_eq!(ALLOCATE.with_groups(7).unwrap_err().name, "groups");
    assert_eq!(ALLOCATE.with_fewer_rounds(4), Sampling::Allocate { rounds: 4 });
    assert_eq!(ALLOCATE.with_fewer_rounds(0), Sampling::Allocate { rounds: 1 });
    assert_eq!(ALLOCATE.with_fewer_rounds(400), ALLOCATE);
    assert_eq!(CELLS.with_groups(7).unwrap_err().name, "groups");
    let fewer = Sampling::AllocateCells { rounds: 4, groups: 3, group_size: 7 };
    assert_eq!((CELLS.with_fewer_rounds(4), CELLS.with_fewer_rounds(400)), (fewer, CELLS));
}

#[test]
fn impossible_sizes_are_refused_by_name() {
    let name = |sampling: Sampling, differing| sampling.check(differing).err().map(|error| error.name);
    let subset = |samples, groups, group_size| Sampling::Subsample { samples, groups, group_size };
    assert_eq!(answers(|s| name(*s, 1)), [None; 5]);
    assert_eq!(answers(|s| name(*s, 104)), [Some("differing"), Some("differing"), None, None, None]);
    assert_eq!(name(subset(0, 1, 1), 1), Some("samples"));
    assert_eq!(name(subset(MOST_SAMPLES + 1, 1, 1), 1), Some("samples"));
    assert_eq!(name(subset(9, 0, 1), 1), Some("groups"));
    assert_eq!(name(subset(9, 1, 0), 1), Some("group-size"));
    assert_eq!(name(subset(9, 5, 2), 1), Some("groups × group-size"));
    assert_eq!(name(subset(9, u64::MAX, 2), 1), Some("groups × group-size"));
    for rate in [0.0, -1.0, 1.1, f64::NAN, f64::INFINITY] {
        assert_eq!(name(Sampling::Poisson { rate }, 1), Some("rate"));
    }
    for rounds in [0, 100_000_001, u64::MAX] {
        assert_eq!(name(Sampling::Allocate { rounds }, 1), Some("rounds-per-epoch"));
    }
    assert_eq!(name(Sampling::Allocate { rounds: 100_000_000 }, 512), None);
    let cells = |rounds, groups, group_size| Sampling::AllocateCells { rounds, groups, group_size };
    assert_eq!(name(cells(0, 1, 2), 1), Some("rounds-per-epoch"));
    assert_eq!(name(cells(1, 0, 2), 1), Some("groups"));
    assert_eq!(name(cells(1, 1, 1), 1), Some("group-size"));
    assert_eq!(name(cells(10_001, 10_000, 2), 1), Some("rounds-per-epoch × groups"));
    assert_eq!(name(cells(10_000, 10_000, 2), 512), None);
}
