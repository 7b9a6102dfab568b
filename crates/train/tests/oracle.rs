//! Algorithm 1 once more, slowly: one sample, one group, one coordinate after the other, in double
//! precision, with the draws of the fast trainer. Every update must agree to rounding.

mod toy;

use std::sync::Arc;

use dpsgd_privacy::mechanism::{Length, NoiseScale, PhaseConfig, RunConfig, Sampling};
use dpsgd_train::noise::exact::Exact;
use dpsgd_train::sampler::Sampler;
use dpsgd_train::{
    GroupResult, Hook, Inner, InnerSequence, NoiseKind, Outer, Plan, PlanConfig, Purpose, Randomness, Rule,
    Schedule, Trainer, noise,
};
use toy::*;

const SEED: u64 = 20_240_917;
const SAMPLES: u64 = 215;

/// a_h, transcribed from PyTorch's documentation of each optimizer.
fn result_of_group(inner: &Inner, kind: GroupResult, toy: &Toy, w: &[f64], group: &[u32]) -> Vec<f64> {
    if *inner == Inner::Gradient {
        return toy.gradient(w, group).0;
    }
    let mut end = w.to_vec();
    let mut sum = vec![0.0; w.len()];
    let (mut first, mut second) = (vec![0.0; w.len()], vec![0.0; w.len()]);
    let mut eta = 0.0;
    for (t, &sample) in group.iter().enumerate() {
        let (g, _) = toy.gradient(&end, &[sample]);
        for i in 0..w.len() {
            sum[i] += g[i];
            match *inner {
                Inner::Sgd { step } => {
                    eta = step;
                    end[i] -= step * g[i];
                }
                Inner::Momentum { step, momentum } => {
                    eta = step;
                    first[i] = if t == 0 { g[i] } else { momentum * first[i] + g[i] };
                    end[i] -= step * first[i];
                }
                Inner::Adam { step, beta1, beta2, epsilon } => {
                    eta = step;
                    first[i] = beta1 * first[i] + (1.0 - beta1) * g[i];
                    second[i] = beta2 * second[i] + (1.0 - beta2) * g[i] * g[i];
                    let mean = first[i] / (1.0 - beta1.powi(t as i32 + 1));
                    let variance: f64 = second[i] / (1.0 - beta2.powi(t as i32 + 1));
                    end[i] -= step * mean / (variance.sqrt() + epsilon);
                }
                Inner::AdaGrad { step, epsilon } => {
                    eta = step;
                    second[i] += g[i] * g[i];
                    end[i] -= step * g[i] / (second[i].sqrt() + epsilon);
                }
                Inner::RmsProp { step, alpha, epsilon } => {
                    eta = step;
                    second[i] = alpha * second[i] + (1.0 - alpha) * g[i] * g[i];
                    end[i] -= step * g[i] / (second[i].sqrt() + epsilon);
                }
                ref other => panic!("no transcription of {other:?}"),
            }
        }
    }
    match kind {
        GroupResult::SumOfGradients => sum,
        _ => w.iter().zip(&end).map(|(w, end)| (w - end) / eta).collect(),
    }
}

fn clip(x: &mut [f64], bound: f64) {
    let norm = length(x);
    if norm > bound {
        x.iter_mut().for_each(|x| *x *= bound / norm);
    }
}

/// What one round must give.
struct Expected {
    /// Ū/m.
    update: Vec<f64>,
    /// How long the longest sum of clipped results can be, over m: the scale of rounding.
    reach: f64,
}

fn round(plan: &Plan, toy: &Toy, w: &[f32], round: u64, eta_bound: f64, randomness: &Randomness) -> Expected {
    let config = plan.config();
    let position = plan.position(round);
    let phase = plan.phase(&position);
    let mut sampler = Sampler::new(toy.inputs.len() as u32);
    let batch = sampler.batch(plan, &position, randomness);
    let samples = toy.inputs.len() as u32;
    // One coin for each group of a filtered round, in order.
    let kept = |groups: usize| -> Vec<bool> {
        let mut coins = randomness.stream(Purpose::Filter, round);
        let mut bits = 0;
        let mut coin = |h: usize| {
            bits = if h.is_multiple_of(64) { coins.bits64() } else { bits >> 1 };
            !phase.filtered() || bits & 1 == 1
        };
        (0..groups).map(&mut coin).collect()
    };
    if let Sampling::Allocate { rounds } = phase.sampling() {
        let mut given = batch.samples.to_vec();
        given.sort_unstable();
        let drawn = allocated(plan, round, rounds, 1, samples, randomness).remove(0);
        let coins = kept(drawn.len());
        let expected = drawn.into_iter().zip(coins).filter(|(_, kept)| *kept).map(|(sample, _)| sample);
        assert_eq!(given, expected.collect::<Vec<_>>());
    }
    if let Sampling::AllocateCells { rounds, groups, .. } = phase.sampling() {
        let mut expected = allocated(plan, round, rounds, groups, samples, randomness);
        for (cell, kept) in expected.iter_mut().zip(kept(groups as usize)) {
            if !kept {
                cell.clear();
            }
        }
        assert_eq!(batch.groups().map(<[u32]>::to_vec).collect::<Vec<_>>(), expected);
    }
    let w: Vec<f64> = w.iter().map(|&w| f64::from(w)).collect();
    let inner = config.inner.at(round, position.round_of_epoch);
    let mut sum = vec![0.0; w.len()];
    let mut groups = 0.0;
    for group in batch.groups() {
        if group.is_empty() {
            continue;
        }
        let mut a = result_of_group(inner, config.result, toy, &w, group);
        if a.iter().any(|a| !a.is_finite()) {
            continue;
        }
        if let Some(hook) = &config.hook {
            clip(&mut a, hook.bound());
            double_the_first_half(&mut a);
        }
        clip(&mut a, eta_bound);
        sum.iter_mut().zip(&a).for_each(|(sum, a)| *sum += a);
        groups += 1.0;
    }
    // What rounding may add where a sample is added or removed is in the noise.
    let drawn_alone = matches!(phase.sampling(), Sampling::Poisson { .. } | Sampling::Allocate { .. });
    let in_cells = matches!(phase.sampling(), Sampling::AllocateCells { .. });
    let independent = phase.filtered() && !in_cells || drawn_alone;
    let shift = if independent { 1.0 / 4096.0 } else { 0.0 };
    let sensitivity = 2.0 * eta_bound * (1.0 + shift);
    let noise = match config.noise {
        NoiseKind::Fast => {
            let mut normals = vec![0.0; w.len()];
            noise::fast::draws(randomness, round, &mut normals);
            let deviation = sensitivity * phase.sigma();
            normals.iter().map(|&z| deviation * f64::from(z)).collect::<Vec<_>>()
        }
        _ => {
            let exact = Exact::for_sensitivity(sensitivity, w.len(), phase.sigma());
            let mut whole = vec![0.0; w.len()];
            noise::exact::draws(randomness, round, exact.deviation() / exact.step(), &mut whole);
            whole.iter().map(|z| z * exact.step()).collect()
        }
    };
    let deviation = 2.0 * eta_bound * phase.sigma();
    let divisor = match phase.sampling() {
        Sampling::Subsample { groups, .. }
        | Sampling::Shuffle { groups, .. }
        | Sampling::AllocateCells { groups, .. } => groups as f64,
        Sampling::Poisson { .. } | Sampling::Allocate { .. } => config.divisors[position.phase].unwrap(),
    };
    let update = sum.iter().zip(&noise).map(|(u, z)| (u + z) / divisor).collect();
    Expected { update, reach: (groups * eta_bound + deviation) / divisor }
}

/// The cells of an allocated round: every sample of its epoch draws, those that drew this round are kept.
fn allocated(
    plan: &Plan,
    round: u64,
    rounds: u64,
    cells: u64,
    samples: u32,
    randomness: &Randomness,
) -> Vec<Vec<u32>> {
    // The epochs of a phase begin with it; one that it breaks off counts as one.
    let (mut epoch, mut of_phase) = (0, round);
    for phase in plan.mechanism().phases() {
        let per_epoch = phase.sampling().rounds_per_epoch();
        if of_phase < phase.rounds() {
            epoch += of_phase / per_epoch;
            break;
        }
        epoch += phase.rounds().div_ceil(per_epoch);
        of_phase -= phase.rounds();
    }
    let mut stream = randomness.stream(Purpose::Allocation, epoch);
    let mut kept = vec![Vec::new(); cells as usize];
    for sample in 0..samples {
        let cell = u64::from(stream.below((rounds * cells) as u32));
        if cell / cells == of_phase % rounds {
            kept[(cell % cells) as usize].push(sample);
        }
    }
    kept
}

/// The B of these tests, breaking its promise ‖B(x)‖ ≤ C.
fn double_the_first_half<T: Copy + std::ops::Add<Output = T>>(x: &mut [T]) {
    let half = x.len() / 2;
    x[..half].iter_mut().for_each(|x| *x = *x + *x);
}

fn inners() -> Vec<Inner> {
    ["gradient", "sgd", "momentum", "adam", "adagrad", "rmsprop"]
        .iter()
        .map(|name| {
            Inner::named(name, if ["sgd", "momentum"].contains(name) { 0.002 } else { 0.001 }).unwrap()
        })
        .collect()
}

/// The median length of the results of the first round, so that the clip cuts some and not others.
fn typical(plan: &Plan, toy: &Toy, w: &[f32]) -> f64 {
    let w: Vec<f64> = w.iter().map(|&w| f64::from(w)).collect();
    let randomness = Randomness::from_seed(SEED, 0);
    let mut sampler = Sampler::new(toy.inputs.len() as u32);
    let batch = sampler.batch(plan, &plan.position(0), &randomness);
    let inner = plan.config().inner.at(0, 0);
    let result = |group| length(&result_of_group(inner, plan.config().result, toy, &w, group));
    let mut norms: Vec<f64> = batch.groups().filter(|group| !group.is_empty()).map(result).collect();
    norms.sort_by(f64::total_cmp);
    norms.get(norms.len() / 2).copied().unwrap_or(1.0)
}

/// Runs trainer and oracle side by side for all rounds and compares every update, then the weights.
fn compare(config: &PlanConfig, toy: &Toy, threads: &[usize], what: &str) {
    let w0 = toy.weights(3);
    let mut firsts: Vec<Vec<f32>> = Vec::new();
    for &threads in threads {
        let plan = PlanConfig { threads, ..config.clone() }.check().unwrap();
        let ledger = Remember::new(plan.clone());
        let model = Arc::new(toy.clone());
        let mut trainer = Trainer::new(ledger, model, w0.clone(), Randomness::from_seed(SEED, 0)).unwrap();
        let randomness = Randomness::from_seed(SEED, 0);
        for index in 0..plan.rounds() {
            let before = trainer.weights().to_vec();
            let report = trainer.round().unwrap();
            let update = report.update.to_vec();
            let (eta, bound) = (report.eta, report.bound);
            if threads == 1 {
                let expected = round(&plan, toy, &before, index, bound, &randomness);
                let error = distance(update.iter().map(|&u| f64::from(u)), expected.update.iter().copied());
                // The clip stays 6e-5 below C; the grid rounds by 2e-6 deviations a coordinate.
                assert!(error < 1.5e-4 * expected.reach, "{what}, round {index}: {error} {}", expected.reach);
                if config.outer == Outer::Plain {
                    for ((w, b), u) in trainer.weights().iter().zip(&before).zip(&update) {
                        let exact = f64::from(*b) - eta * f64::from(*u);
                        let scale = f64::from(b.abs()) + eta * f64::from(u.abs());
                        assert!((f64::from(*w) - exact).abs() <= 2e-7 * scale, "{what}");
                    }
                }
                firsts.push(update);
            } else {
                assert_eq!(update, firsts[index as usize], "{what}: {threads} threads, round {index}");
            }
        }
        assert_eq!(trainer.ledger().charged, (0..plan.rounds()).collect::<Vec<_>>());
    }
}

fn settings() -> Vec<(String, Sampling, bool)> {
    let mut all = vec![
        ("poisson".to_string(), Sampling::Poisson { rate: 0.3 }, false),
        ("allocate".to_string(), Sampling::Allocate { rounds: 3 }, false),
        ("allocate filtered".to_string(), Sampling::Allocate { rounds: 3 }, true),
    ];
    // Cells of about seven, of less than one (most are empty) and of more than a unit's worth of samples.
    for (groups, group_size) in [(10, 7), (200, 2), (2, 40)] {
        for filtered in [false, true] {
            let sampling = Sampling::AllocateCells { rounds: 3, groups, group_size };
            all.push((format!("cells {groups} {filtered}"), sampling, filtered));
        }
    }
    for (clipping, groups, group_size) in [("individual", 70, 1), ("mixed", 10, 7), ("batch", 1, 70)] {
        for filtered in [false, true] {
            all.push((
                format!("subsample {clipping} {filtered}"),
                subsample(SAMPLES, groups, group_size),
                filtered,
            ));
            all.push((
                format!("shuffle {clipping} {filtered}"),
                shuffle(SAMPLES, groups, group_size),
                filtered,
            ));
        }
    }
    all
}

#[test]
fn every_sampler_clipping_inner_algorithm_and_result() {
    let toy = Toy::new(SAMPLES as usize, 1);
    for (name, sampling, filtered) in settings() {
        for inner in inners() {
            for kind in [GroupResult::SumOfGradients, GroupResult::ModelDifference] {
                let mut config = PlanConfig::new(mechanism(sampling, 5, 0.5, filtered), 1.0, 0.05);
                // Both kinds of noise with every sampler.
                config.noise = if inner == Inner::Gradient { NoiseKind::Fast } else { NoiseKind::Exact };
                config.inner = inner.clone().into();
                config.result = kind;
                config = config.with_divisor(64.0);
                let typical = typical(&config.check().unwrap(), &toy, &toy.weights(3));
                for share in [0.7, 1.4] {
                    config.clipping = Schedule::constant(share * typical);
                    // Small enough that the noise does not throw w about.
                    config.step = Schedule::constant(0.01 / typical);
                    compare(&config, &toy, &[1, 2, 3], &format!("{name} {inner:?} {kind:?} {share}"));
                }
            }
        }
    }
}

#[test]
fn models_that_are_not_separable() {
    let mut toy = Toy::new(SAMPLES as usize, 2);
    toy.centred = true;
    for (groups, group_size) in [(10, 7), (3, 40), (1, 70)] {
        let mut config =
            PlanConfig::new(mechanism(subsample(SAMPLES, groups, group_size), 4, 0.5, false), 1.0, 0.05);
        let typical = typical(&config.check().unwrap(), &toy, &toy.weights(3));
        config.clipping = Schedule::constant(typical);
        compare(&config, &toy, &[1, 2, 3], &format!("centred {groups} {group_size}"));
    }
    let cells = Sampling::AllocateCells { rounds: 3, groups: 4, group_size: 15 };
    let mut config = PlanConfig::new(mechanism(cells, 6, 0.5, false), 1.0, 0.05);
    let typical = typical(&config.check().unwrap(), &toy, &toy.weights(3));
    config.clipping = Schedule::constant(typical);
    compare(&config, &toy, &[1, 2, 3], "centred cells");
}

#[test]
fn a_hook_that_breaks_its_promise_is_clipped_again() {
    let toy = Toy::new(SAMPLES as usize, 3);
    for (groups, group_size) in [(70, 1), (10, 7), (1, 70)] {
        for inner in [Inner::Gradient, Inner::Sgd { step: 0.02 }] {
            let mut config =
                PlanConfig::new(mechanism(subsample(SAMPLES, groups, group_size), 3, 0.5, false), 1.0, 0.05);
            config.inner = inner.clone().into();
            let typical = typical(&config.check().unwrap(), &toy, &toy.weights(3));
            config.clipping = Schedule::constant(1.2 * typical);
            config.step = Schedule::constant(0.01 / typical);
            config.hook = Some(Hook::new(typical, |x: &mut [f32]| double_the_first_half(x)));
            compare(&config, &toy, &[1, 2, 3], &format!("hook {groups} {inner:?}"));
        }
    }
}

#[test]
fn broken_samples_count_as_zero() {
    let mut toy = Toy::new(SAMPLES as usize, 4);
    toy.broken = (0..40).collect();
    for (groups, group_size) in [(70, 1), (70, 2), (2, 40)] {
        for inner in inners() {
            let mut config =
                PlanConfig::new(mechanism(subsample(SAMPLES, groups, group_size), 3, 0.5, false), 1.0, 0.05);
            config.inner = inner.clone().into();
            config.diagnostics = true;
            compare(&config, &toy, &[1, 2, 3], &format!("broken {groups} {inner:?}"));
        }
    }
}

#[test]
fn sequences_and_schedules() {
    let toy = Toy::new(SAMPLES as usize, 5);
    let mut config = PlanConfig::new(mechanism(shuffle(SAMPLES, 10, 7), 9, 0.5, false), 1.0, 0.05);
    config.step = Schedule { start: 0.1, rule: Rule::InverseRoot };
    config.clipping = Schedule { start: 0.8, rule: Rule::Step { factor: 0.5, epochs: 1 } };
    config.inner = InnerSequence::Cycle(inners());
    compare(&config, &toy, &[1, 2, 3], "cycle");
    config.inner =
        InnerSequence::Pieces(vec![(0, Inner::Gradient), (4, Inner::named("adam", 0.01).unwrap())]);
    compare(&config, &toy, &[1, 2, 3], "pieces");
    let follow = Rule::FollowUpdate { share: 0.4, rate: 0.5, lowest: 0.01, highest: 3.0 };
    config.clipping = Schedule { start: 0.8, rule: follow };
    compare(&config, &toy, &[1, 2, 3], "follow");
}

#[test]
fn outer_optimizers_see_the_noised_update_only() {
    let toy = Toy::new(SAMPLES as usize, 6);
    for outer in [Outer::Momentum { momentum: 0.9, nesterov: false }, Outer::ADAM] {
        let mut config = PlanConfig::new(mechanism(subsample(SAMPLES, 70, 1), 6, 0.5, false), 0.3, 0.01);
        config.outer = outer.clone();
        compare(&config, &toy, &[1, 2, 3], &format!("{outer:?}"));
        // The weights follow from the released updates alone.
        let plan = config.check().unwrap();
        let (ledger, model) = (Remember::new(plan.clone()), Arc::new(toy.clone()));
        let mut trainer =
            Trainer::new(ledger, model, toy.weights(3), Randomness::from_seed(SEED, 0)).unwrap();
        let mut w: Vec<f64> = toy.weights(3).iter().map(|&w| f64::from(w)).collect();
        let (mut first, mut second) = (vec![0.0; w.len()], vec![0.0; w.len()]);
        for t in 1..=plan.rounds() as i32 {
            let update = trainer.round().unwrap().update.to_vec();
            for i in 0..w.len() {
                let u = f64::from(update[i]);
                if let Outer::Momentum { momentum, .. } = outer {
                    first[i] = momentum * first[i] + u;
                    w[i] -= 0.01 * first[i];
                } else {
                    first[i] = 0.9 * first[i] + 0.1 * u;
                    second[i] = 0.999 * second[i] + 0.001 * u * u;
                    let variance: f64 = second[i] / (1.0 - 0.999f64.powi(t));
                    w[i] -= 0.01 * (first[i] / (1.0 - 0.9f64.powi(t))) / (variance.sqrt() + 1e-8);
                }
                assert!((w[i] - f64::from(trainer.weights()[i])).abs() < 1e-5, "{outer:?} {t} {i}");
            }
        }
    }
}

/// Phases with different samplers, σ, group sizes and public divisors, one after the other.
#[test]
fn several_phases() {
    let toy = Toy::new(SAMPLES as usize, 7);
    let phase = |sampling, rounds, sigma, filtered| PhaseConfig {
        sampling,
        length: Length::Rounds(rounds),
        noise: NoiseScale::Sigma(sigma),
        filtered,
    };
    let mut run = RunConfig::single(phase(subsample(SAMPLES, 20, 2), 2, 0.5, false));
    run.phases.push(phase(Sampling::Poisson { rate: 0.3 }, 2, 0.6, false));
    run.phases.push(phase(shuffle(SAMPLES, 3, 40), 3, 0.7, false));
    run.phases.push(phase(Sampling::Poisson { rate: 0.1 }, 3, 0.4, false));
    run.phases.push(phase(shuffle(SAMPLES, 10, 7), 4, 0.5, true));
    run.phases.push(phase(subsample(SAMPLES, 70, 1), 2, 0.3, false));
    run.phases.push(phase(Sampling::Allocate { rounds: 4 }, 6, 0.5, false));
    run.phases.push(phase(shuffle(SAMPLES, 10, 7), 2, 0.6, false));
    run.phases.push(phase(Sampling::Allocate { rounds: 3 }, 3, 0.6, false));
    run.phases.push(phase(Sampling::AllocateCells { rounds: 4, groups: 5, group_size: 10 }, 6, 0.6, false));
    let mut config = PlanConfig::new(run.check().unwrap(), 0.8, 0.01);
    let (m, constant) = (None, Some);
    config.divisors = vec![m, constant(64.0), m, constant(20.5), m, m, constant(50.0), m, constant(70.5), m];
    for inner in inners() {
        config.inner = inner.clone().into();
        compare(&config, &toy, &[1, 2, 3], &format!("phases {inner:?}"));
    }
    config.clipping = Schedule { start: 0.8, rule: Rule::Step { factor: 0.9, epochs: 1 } };
    config.step = Schedule { start: 0.02, rule: Rule::InverseRoot };
    config.inner = InnerSequence::Cycle(inners());
    compare(&config, &toy, &[1, 2, 3], "phases with schedules");
}
