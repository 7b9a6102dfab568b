//! Whole federations of a small model, over thousands of seeds of faults.
//!
//! `DPSGD_SIMULATION_SEEDS` sets how many seeds are tried (4000 unless it is set). A seed that fails is made as
//! small as it can be and still fail, and printed: add what is printed to `KEPT`, which is always tried.

use std::sync::Arc;

use dpsgd::PerSample;
use dpsgd::privacy::mechanism::{Length, NoiseScale, PhaseConfig, RunConfig, Sampling};
use dpsgd::train::{NoiseKind, Outer, Plan, PlanConfig, Randomness, Schedule, Trainer, Unrecorded};
use dpsgd_federated::simulate::{Conditions, Delay, Finished, Site, World};
use dpsgd_federated::{
    Agreed, Bounds, ClientId, Combine, Coordinator, Outcome, Reject, Rule, ServerOuter, Staleness, Terms,
};
use rayon::prelude::*;

const D: usize = 8;
const SAMPLES: usize = 40;
const GROUPS: u64 = 8;
const CLIP: f64 = 1.0;
const SIGMA: f64 = 0.7;

/// Cases that failed once, as they were printed. None has since these tests were written.
const KEPT: [Case; 0] = [];

type Toy = PerSample<fn(&[f32], u32, &mut [f32]) -> Result<f32, dpsgd::train::ModelError>>;

/// Least squares towards points that depend on the sample.
fn toy() -> Arc<Toy> {
    fn gradient(w: &[f32], i: u32, g: &mut [f32]) -> Result<f32, dpsgd::train::ModelError> {
        let mut loss = 0.0;
        for (j, (g, w)) in g.iter_mut().zip(w).enumerate() {
            let error = w - ((i as usize * (j + 3)) % 7) as f32 * 0.2;
            *g += error;
            loss += 0.5 * error * error;
        }
        Ok(loss)
    }
    Arc::new(PerSample::new(D, SAMPLES, gradient as fn(&[f32], u32, &mut [f32]) -> Result<f32, _>))
}

fn plan(rounds: u64, shuffled: bool) -> Arc<Plan> {
    let samples = SAMPLES as u64;
    let sampling = match shuffled {
        true => Sampling::Shuffle { samples, groups: GROUPS, group_size: 1 },
        false => Sampling::Subsample { samples, groups: GROUPS, group_size: 1 },
    };
    let run = RunConfig::single(PhaseConfig {
        sampling,
        length: Length::Rounds(rounds),
        noise: NoiseScale::Sigma(SIGMA),
        filtered: false,
    });
    let mut config = PlanConfig::new(run.check().unwrap(), CLIP, 0.1);
    (config.threads, config.noise) = (1, NoiseKind::Fast);
    Arc::new(config.check().unwrap())
}

fn terms(clients: u64, rounds: u64, rule: Rule, outer: ServerOuter) -> Arc<Agreed> {
    Agreed::shared(Terms {
        name: "toy".into(),
        dimension: D as u64,
        clients,
        rounds,
        max_staleness: 1000,
        step: Schedule::constant(0.1),
        bounds: Bounds::of(CLIP, 2.0 * CLIP * SIGMA / GROUPS as f64),
        rule,
        weight: Staleness::Constant,
        outer,
    })
    .unwrap()
}

fn world(terms: Arc<Agreed>, plans: &[Arc<Plan>], conditions: Conditions, seed: u64) -> World<Toy> {
    let model = toy();
    let site = |(i, plan): (usize, &Arc<Plan>)| Site {
        model: model.clone(),
        plan: plan.clone(),
        seed: seed + i as u64,
    };
    let sites = plans.iter().enumerate().map(site).collect();
    World { terms, sites, weights: vec![0.5; D], conditions, seed, record: true }
}

/// One client, each update, no delay: the centralised trainer, bit for bit, whatever optimizer the server has.
#[test]
fn one_client_is_the_centralised_trainer() {
    let momentum = ServerOuter::Momentum { momentum: 0.9, nesterov: false };
    let adam = ServerOuter::Adam { beta1: 0.9, beta2: 0.999, epsilon: 1e-8 };
    for outer in [ServerOuter::Plain, momentum, adam] {
        let plan = plan(30, true);
        let world = world(
            terms(1, 30, Rule::EachUpdate, outer),
            std::slice::from_ref(&plan),
            Conditions::default(),
            5,
        );
        let finished = world.run(&mut |_| {}).unwrap();
        let mut config = plan.config().clone();
        config.outer = Outer::from(outer);
        let ledger = Unrecorded::new(config.check().unwrap());
        let mut central = Trainer::new(ledger, toy(), vec![0.5; D], Randomness::from_seed(5, 0)).unwrap();
        while !central.finished() {
            central.round().unwrap();
        }
        assert_eq!(finished.state.weights, central.weights());
        assert_eq!((finished.state.version, finished.state.accepted()), (30, 30));
        assert_eq!(finished.state.mean_staleness(), Some(0.0));
        assert!((finished.seconds - 30.0).abs() < 1e-6, "{}", finished.seconds);
    }
}

/// What must hold whatever happened.
fn check(seed: u64, terms: &Arc<Agreed>, finished: &Finished) {
    let record = finished.record.as_ref().unwrap();
    let state = &finished.state;
    let rejected: u64 = state.rejected().values().sum();
    let sent: u64 = finished.clients.iter().map(|client| client.sent).sum();
    // Every update reached the log once, and its copies were counted.
    assert_eq!(state.accepted() + rejected, sent + finished.repeated, "seed {seed}: {:?}", state.rejected());
    assert_eq!(record.log.len() as u64, sent + finished.repeated, "seed {seed}");
    let replayed = state.rejected().get(&Reject::Replayed).copied().unwrap_or(0);
    let others: Vec<_> =
        state.rejected().into_iter().filter(|(reason, _)| *reason != Reject::Replayed).collect();
    let allowed = |reason: &Reject| *reason == Reject::Stale;
    assert!(others.iter().all(|(reason, _)| allowed(reason)), "seed {seed}: {others:?}");
    // No run is longer than the window, so only copies are replays; without stale updates all of them are.
    assert!(replayed <= finished.repeated, "seed {seed}");
    assert!(!others.is_empty() || state.accepted() == sent, "seed {seed}: an honest update was not folded");
    for (i, client) in finished.clients.iter().enumerate() {
        assert!(client.charged >= client.left, "seed {seed}: client {}: {client:?}", i + 1);
        assert!(client.charged >= client.sent + client.crashes.min(1), "seed {seed}: {client:?}");
        assert!(client.charged <= terms.rounds, "seed {seed}");
    }
    // Every saved state leads to the next one, the beginning to the first and the last to the end: so replaying
    // the log from any of them gives the same model.
    let mut coordinator = Coordinator::new(terms.clone(), vec![0.5; D]).unwrap();
    let mut read = 0;
    let mut replay = |coordinator: &mut Coordinator, until: u64| {
        while read < until {
            let (sender, bytes) = &record.log[read as usize];
            read += 1;
            coordinator.apply(read, *sender, bytes).unwrap();
        }
    };
    for saved in &record.saved {
        let restored = Coordinator::restore(terms.clone(), saved).unwrap();
        replay(&mut coordinator, restored.state().sequence);
        assert_eq!(&coordinator.snapshot(), saved, "seed {seed}: a saved state is not the fold of the log");
        coordinator = restored;
    }
    replay(&mut coordinator, record.log.len() as u64);
    assert_eq!(coordinator.state(), state, "seed {seed}");
}

/// What can be chosen, and how many ways there are; 0 is the simplest.
const CHOICES: [u64; 13] = [6, 20, 4, 2, 2, 3, 2, 2, 2, 2, 2, 3, 7];

/// A federation with faults: everything that happens follows from it.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Case {
    seed: u64,
    choices: [u64; 13],
}

impl Case {
    /// The case of a seed: a choice of everything.
    fn of(seed: u64) -> Self {
        let mut state = seed;
        let choices = CHOICES.map(|ways| {
            // SplitMix64.
            state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
            let mixed = (state ^ (state >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
            let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
            (mixed ^ (mixed >> 31)) % ways
        });
        Self { seed, choices }
    }

    /// As small as it can be and still fail.
    fn shrunk(mut self, fails: &dyn Fn(&Self) -> bool) -> Self {
        loop {
            let before = self;
            for i in 0..CHOICES.len() {
                let now = self.choices[i];
                for smaller in [0, now / 2, now.saturating_sub(1)] {
                    let mut tried = self;
                    tried.choices[i] = smaller;
                    if smaller < self.choices[i] && fails(&tried) {
                        self = tried;
                    }
                }
            }
            if self == before {
                return self;
            }
        }
    }

    fn check(&self) {
        let [clients, rounds, rule, outer, stale, delay, lost, repeated, crash, cut, killed, restarts, save] =
            self.choices;
        let (clients, rounds) = (1 + clients, 5 + rounds);
        let rule = match rule {
            0 => Rule::EachUpdate,
            1 => Rule::Buffer { size: 1 + self.seed % 5, combine: Combine::Mean },
            2 => Rule::Buffer { size: 5, combine: Combine::TrimmedMean { trim: 1 } },
            _ => Rule::Buffer { size: 4, combine: Combine::Median },
        };
        let outer =
            [ServerOuter::Plain, ServerOuter::Momentum { momentum: 0.5, nesterov: true }][outer as usize];
        let mut wanted = (**terms(clients, rounds, rule, outer)).clone();
        wanted.weight = Staleness::Polynomial { power: 0.5 };
        wanted.max_staleness = [1000, 3][stale as usize];
        let terms = Agreed::shared(wanted).unwrap();
        let plans: Vec<_> = (0..clients).map(|i| plan(rounds - i.min(3), i % 2 == 0)).collect();
        let conditions = Conditions {
            round_seconds: 1.0,
            spread: 0.5,
            delay: [Delay::None, Delay::Exponential(0.7), Delay::LogNormal(0.3, 2.0)][delay as usize],
            lost: 0.3 * lost as f64,
            repeated: 0.3 * repeated as f64,
            crash: 0.1 * crash as f64,
            partition: 0.1 * cut as f64,
            coordinator_crash: 0.1 * killed as f64,
            restarts: restarts as u32,
            save_every: 1 + save,
            ..Conditions::default()
        };
        let run = || world(terms.clone(), &plans, conditions, self.seed).run(&mut |_| {}).unwrap();
        let finished = run();
        check(self.seed, &terms, &finished);
        // The seed decides everything.
        if self.seed.is_multiple_of(16) {
            let again = run();
            assert_eq!((&again.state, &again.clients), (&finished.state, &finished.clients), "{self:?}");
        }
    }

    fn fails(&self) -> bool {
        std::panic::catch_unwind(|| self.check()).is_err()
    }
}

#[test]
fn every_seed_of_faults_keeps_the_invariants() {
    let wanted = std::env::var("DPSGD_SIMULATION_SEEDS").ok().and_then(|text| text.parse().ok());
    let seeds: u64 = wanted.unwrap_or(4000);
    let cases = KEPT.into_par_iter().chain((0..seeds).into_par_iter().map(Case::of));
    let failed: Vec<Case> = cases.filter(Case::fails).collect();
    let smallest = failed.first().map(|case| case.shrunk(&Case::fails));
    assert!(failed.is_empty(), "{} of {seeds} seeds fail; keep {smallest:?}", failed.len());
}

/// A case that fails is made small, and nothing of what makes it fail is taken away.
#[test]
fn a_failing_case_shrinks() {
    let fails = |case: &Case| case.choices[0] >= 2 && case.choices[1] > 10 && case.choices[6] == 1;
    let found = (0..).map(Case::of).find(fails).unwrap();
    let [clients, rounds, .., lost, _, _, _, _, _, _] = found.shrunk(&fails).choices;
    assert_eq!((clients, rounds, lost), (2, 11, 1));
    assert_eq!(found.shrunk(&fails).choices.iter().sum::<u64>(), 14, "everything else is at its simplest");
}

/// The checks would notice: an update that is lost or counted twice, a model that is not the fold of the log, a
/// saved state that is not, a ledger below what left.
#[test]
fn the_invariants_notice_what_they_are_for() {
    let terms = terms(2, 10, Rule::EachUpdate, ServerOuter::Plain);
    let plans = [plan(10, false), plan(10, true)];
    let sound = world(terms.clone(), &plans, Conditions::default(), 9).run(&mut |_| {}).unwrap();
    check(9, &terms, &sound);
    let spoilt: [fn(&mut Finished); 5] = [
        |finished| finished.clients[0].sent += 1,
        |finished| finished.repeated += 1,
        |finished| finished.state.weights[3] += 1e-6,
        |finished| finished.record.as_mut().unwrap().saved.swap(3, 4),
        |finished| finished.clients[1].charged -= 1,
    ];
    for (i, spoil) in spoilt.into_iter().enumerate() {
        let mut finished = sound.clone();
        spoil(&mut finished);
        let checked = std::panic::AssertUnwindSafe(|| check(9, &terms, &finished));
        let noticed = std::panic::catch_unwind(checked).is_err();
        assert!(noticed, "fault {i} was not noticed");
    }
}

#[test]
fn a_restart_throws_away_less_than_it_saves_in_staleness() {
    let terms = terms(4, 40, Rule::EachUpdate, ServerOuter::Plain);
    let plans = vec![plan(40, false); 4];
    let run = |restarts| {
        let conditions =
            Conditions { spread: 0.3, delay: Delay::Exponential(0.2), restarts, ..Conditions::default() };
        world(terms.clone(), &plans, conditions, 3).run(&mut |_| {}).unwrap()
    };
    let (finish, restart) = (run(0), run(2));
    let staleness = |finished: &Finished| finished.state.mean_staleness().unwrap();
    assert!(staleness(&restart) < staleness(&finish));
    assert!(restart.clients.iter().all(|client| client.restarts > 0 && client.discarded > 0.0));
    assert!(restart.clients.iter().all(|client| client.restarts <= 2 * 40));
    assert!(finish.clients.iter().all(|client| client.restarts == 0 && client.interrupts > 0));
    check(3, &terms, &finish);
    check(3, &terms, &restart);
}

#[test]
fn one_outcome_for_every_entry() {
    let terms = terms(2, 10, Rule::EachUpdate, ServerOuter::Plain);
    let finished = world(terms.clone(), &[plan(10, false), plan(10, false)], Conditions::default(), 9)
        .run(&mut |_| {})
        .unwrap();
    let log = finished.record.unwrap().log;
    let mut coordinator = Coordinator::new(terms, vec![0.5; D]).unwrap();
    let (first, bytes) = log[0].clone();
    assert_eq!(first, ClientId(1));
    assert!(coordinator.apply(2, first, &bytes).is_err());
    let accepted = coordinator.apply(1, first, &bytes).unwrap();
    assert!(matches!(accepted, Outcome::Accepted { round: 0, staleness: 0, stepped: true, .. }));
    assert_eq!(coordinator.apply(1, first, &bytes), Ok(Outcome::AlreadyRead));
    assert_eq!(coordinator.apply(2, first, &bytes), Ok(Outcome::Rejected(Reject::Replayed)));
    // Somebody else's update under one's own identity, and a stranger.
    assert_eq!(coordinator.apply(3, ClientId(2), &bytes), Ok(Outcome::Rejected(Reject::Sender)));
    assert_eq!(coordinator.apply(4, ClientId(3), &bytes), Ok(Outcome::Rejected(Reject::Sender)));
    assert_eq!(coordinator.state().strangers, 1);
}
