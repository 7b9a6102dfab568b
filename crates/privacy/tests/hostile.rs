//! Values nobody should give: each is refused, or answered rightly and in time.
//!
//! Every question runs on a thread of its own that is watched: a panic, a hang, a NaN or an interval
//! that is none is a failure that names the run and the question. All failures are listed.

mod common;

use std::fmt::Debug;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::thread;
use std::time::Duration;

use common::{filtered, poisson, run, shuffle, subsample, substituting};
use dpsgd_privacy::adversary::{Adversary, curve, law};
use dpsgd_privacy::curve::{Curve, Point, SMALLEST_DELTA};
use dpsgd_privacy::gaussian;
use dpsgd_privacy::mechanism::{Length, Neighbours, Noise, PhaseConfig, RunConfig, Sampling};
use dpsgd_privacy::{Interval, PrivacyError};

/// The longest a question may take, the first with what it has to prepare.
const PATIENCE: Duration = Duration::from_secs(10);

const NUMBERS: [f64; 16] = [
    0.0,
    -0.0,
    -1.0,
    -1e300,
    f64::NAN,
    f64::INFINITY,
    f64::NEG_INFINITY,
    5e-324,
    1e-310,
    f64::MIN_POSITIVE,
    1e-300,
    1e-17,
    1.0,
    1.0 + f64::EPSILON,
    1e17,
    1e300,
];

/// What a question asked, and what is wrong with the answer.
type Report = (String, Option<String>);

struct Questions {
    send: std::sync::mpsc::Sender<Report>,
}

impl Questions {
    fn ask(&self, question: String, answer: impl FnOnce() -> Result<(), String>) {
        // Announced before it is asked, so that a hang can be named.
        let _ = self.send.send((question.clone(), None));
        let wrong = match catch_unwind(AssertUnwindSafe(answer)) {
            Ok(Ok(())) => return,
            Ok(Err(wrong)) => wrong,
            Err(_) => "panicked".to_string(),
        };
        let _ = self.send.send((question, Some(wrong)));
    }
}

/// Threads that may be left hanging; more of them would slow everybody else down.
const MOST_HANGING: usize = 3;

/// Runs the questions of each subject on a thread; a hanging thread is left behind.
fn watch<S: Debug + Clone + Send + 'static>(subjects: Vec<S>, ask: fn(&S, &Questions)) {
    let mut failures = Vec::new();
    let mut hanging = 0;
    for subject in subjects {
        if hanging == MOST_HANGING {
            failures.push(format!("gave up before {subject:?}"));
            break;
        }
        let (send, receive) = channel();
        let own = subject.clone();
        thread::spawn(move || ask(&own, &Questions { send }));
        let mut question = "start".to_string();
        loop {
            match receive.recv_timeout(PATIENCE) {
                Ok((next, None)) => question = next,
                Ok((question, Some(wrong))) => failures.push(format!("{subject:?}\n    {question}: {wrong}")),
                Err(RecvTimeoutError::Disconnected) => break,
                Err(RecvTimeoutError::Timeout) => {
                    failures.push(format!("{subject:?}\n    {question}: no answer in {PATIENCE:?}"));
                    hanging += 1;
                    break;
                }
            }
        }
    }
    assert!(failures.is_empty(), "{} failures:\n{}", failures.len(), failures.join("\n"));
}

fn within(interval: Interval, low: f64, high: f64) -> Result<(), String> {
    let valid = low <= interval.lower && interval.lower <= interval.upper && interval.upper <= high;
    if valid { Ok(()) } else { Err(format!("{interval:?} is not inside [{low}, {high}]")) }
}

/// An error that says what was wrong is as good as an answer, where `may_refuse`.
fn answer<T>(
    result: Result<T, PrivacyError>,
    may_refuse: bool,
    check: impl FnOnce(T) -> Result<(), String>,
) -> Result<(), String> {
    match result {
        Ok(value) => check(value),
        Err(error) if error.to_string().contains("NaN") && !may_refuse => Err(format!("refused: {error}")),
        Err(_) if may_refuse => Ok(()),
        Err(error) => Err(format!("refused: {error}")),
    }
}

fn point_is_valid(point: Point) -> Result<(), String> {
    within(point.delta, 0.0, 1.0)?;
    within(point.alpha, 0.0, 1.0)?;
    within(point.beta, 0.0, 1.0)
}

/// The questions of a checked run. A run that `check` accepts must be answered by every covered
/// adversary, unless the error is that the computation is too costly or not certified.
fn ask_everything(config: &RunConfig, questions: &Questions) {
    let Ok(mechanism) = config.check() else { return };
    for adversary in [Adversary::A1, Adversary::A0] {
        let name = adversary.name();
        let mut made = None;
        questions.ask(format!("{name} curve"), || {
            answer(curve(&mechanism, adversary), true, |curve| {
                made = Some(curve);
                Ok(())
            })
        });
        let Some(curve) = made else { continue };
        let curve: &dyn Curve = &*curve;
        for delta in [0.999_999, 0.5, 1e-3, 1e-5, 1e-15, 1e-30, 1e-100, 1e-300] {
            questions.ask(format!("{name} epsilon({delta:e})"), || {
                answer(curve.epsilon(delta), true, |epsilon| {
                    within(epsilon, 0.0, f64::INFINITY)?;
                    // Both ends again through δ, which must not contradict them.
                    for (at, ok) in [
                        (epsilon.upper, (|d, t| d.lower <= t) as fn(Interval, f64) -> bool),
                        (epsilon.lower, |d, t| d.upper >= t * (1.0 - 1e-12)),
                    ] {
                        if at.is_finite() && at > 0.0 {
                            answer(curve.delta(at), true, |found| {
                                if ok(found, delta) {
                                    Ok(())
                                } else {
                                    Err(format!("ε={epsilon:?}, δ({at:e})={found:?}"))
                                }
                            })?;
                        }
                    }
                    Ok(())
                })
            });
        }
        for alpha in [1e-300, 1e-20, 1e-6, 0.05, 0.5, 0.95, 1.0 - 1e-12, 1.0 - f64::EPSILON] {
            questions.ask(format!("{name} beta({alpha:e})"), || {
                answer(curve.beta(alpha), true, |beta| within(beta, 0.0, (1.0 - alpha) * (1.0 + 1e-12)))
            });
        }
        for epsilon in [0.0, 1e-300, 1e-9, 0.5, 3.0, 100.0, 1e4, 1e9, 1e300] {
            questions.ask(format!("{name} point({epsilon:e})"), || {
                answer(curve.point(epsilon), true, point_is_valid)
            });
            questions.ask(format!("{name} delta({epsilon:e})"), || {
                answer(curve.delta(epsilon), true, |delta| within(delta, 0.0, 1.0))
            });
        }
        questions.ask(format!("{name} mu_on_default_range"), || {
            answer(curve.mu_on_default_range(), true, |(mu, smallest)| {
                within(mu, 0.0, f64::INFINITY)?;
                if (0.0..0.5).contains(&smallest) { Ok(()) } else { Err(format!("range from {smallest}")) }
            })
        });
    }
    questions.ask("law".to_string(), || {
        answer(law(&mechanism), true, |law| {
            let Some(law) = law else { return Ok(()) };
            let sum: f64 = law.iter().map(|(_, q)| q).sum();
            let allowed = law.missing() + law.relative_error() + law.span() as f64 * f64::EPSILON;
            if (sum - 1.0).abs() <= allowed {
                Ok(())
            } else {
                Err(format!("sums to {sum}, allowed {allowed:e}"))
            }
        })
    });
}

/// A plain run to spoil one value of.
fn plain(sampling: Sampling) -> RunConfig {
    run(sampling, 500, Noise::Sigma(1.0), 1)
}

#[test]
fn descriptions_outside_their_range_are_refused() {
    let plain_subsample = || plain(subsample(1000, 5, 2));
    let mut refused: Vec<(String, RunConfig)> = Vec::new();
    let mut add = |name: String, config: RunConfig| refused.push((name, config));
    for x in [0.0, -0.0, -1.0, f64::NAN, f64::INFINITY, f64::NEG_INFINITY, 5e-324, 1e-310, 1e-300, 1e300] {
        for noise in [Noise::Sigma(x), Noise::Multiplier(x)] {
            let mut config = plain_subsample();
            config.phases[0].noise = noise;
            add(format!("{noise:?}"), config);
        }
        if x != 1.0 {
            add(format!("rate {x}"), plain(poisson(x)));
        }
        // A tiny µ of a further release is allowed: it is a positive number.
        if !(x > 0.0 && x < 1.0) {
            let mut config = plain_subsample();
            config.releases = vec![0.5, x];
            add(format!("release {x}"), config);
        }
    }
    for x in [1.0 + f64::EPSILON, 2.0, 1e-16] {
        add(format!("rate {x}"), plain(poisson(x)));
    }
    for sampling in [subsample, shuffle] {
        for (n, m, s) in [
            (0, 1, 1),
            (10, 0, 1),
            (10, 1, 0),
            (0, 0, 0),
            (10, 11, 1),
            (10, 1, 11),
            (10, 4, 3),
            (1000, 1 << 32, 1 << 32),
            (1000, u64::MAX, u64::MAX),
            (1000, u64::MAX, 2),
            (u64::MAX, 1, 1),
            ((1 << 53) + 1, 1, 1),
        ] {
            add(format!("{:?}", sampling(n, m, s)), plain(sampling(n, m, s)));
        }
        for g in [0, 11, 512, 513, u64::MAX] {
            let config = run(sampling(10, 2, 2), 5, Noise::Sigma(1.0), g);
            add(format!("{:?} g={g}", sampling(10, 2, 2)), config);
        }
        let mut config = plain(sampling(10, 2, 2));
        config.neighbours = Neighbours::AddRemove;
        add(format!("{:?} add-remove", sampling(10, 2, 2)), config);
    }
    for length in [
        Length::Epochs(0),
        Length::Rounds(0),
        Length::Rounds(1_000_000_000_001),
        Length::Rounds(u64::MAX),
        Length::Epochs(u64::MAX),
    ] {
        for sampling in [subsample(1000, 5, 2), shuffle(1000, 5, 2), poisson(0.01)] {
            let mut config = plain(sampling);
            config.phases[0].length = length;
            add(format!("{sampling:?} {length:?}"), config);
        }
    }
    add("filtered poisson".to_string(), filtered(plain(poisson(0.1))));
    let mut none = plain_subsample();
    none.phases.clear();
    add("no phases".to_string(), none);

    let accepted: Vec<_> = refused.into_iter().filter(|(_, c)| c.check().is_ok()).map(|(n, _)| n).collect();
    assert!(accepted.is_empty(), "accepted: {accepted:#?}");
}

#[test]
fn rounds_per_epoch_answers_for_unchecked_sizes() {
    // Asked before a description is checked, for instance to print it.
    let sizes = [(0, 1, 1), (10, 0, 1), (10, 1, 0), (10, 20, 1), (10, u64::MAX, 2), (u64::MAX, 1, 1)];
    let samplers = sizes.into_iter().flat_map(|(n, m, s)| [subsample(n, m, s), shuffle(n, m, s)]);
    let rates = NUMBERS.into_iter().map(poisson);
    watch(samplers.chain(rates).collect(), |sampling, questions| {
        questions.ask("rounds_per_epoch".to_string(), || {
            let rounds = sampling.rounds_per_epoch();
            match *sampling {
                Sampling::Subsample { samples, groups, group_size }
                | Sampling::Shuffle { samples, groups, group_size }
                    if rounds as u128 * groups as u128 * group_size as u128 > samples as u128 =>
                {
                    Err(format!("{rounds} rounds take more than there is"))
                }
                _ => Ok(()),
            }
        });
    });
}

#[test]
fn questions_outside_their_range_are_refused() {
    let runs = vec![
        plain(subsample(1000, 5, 2)),
        plain(shuffle(1000, 5, 2)),
        plain(poisson(0.01)),
        substituting(plain(poisson(0.01))),
    ];
    watch(runs, |config, questions| {
        let mechanism = config.check().expect("a valid run");
        for adversary in [Adversary::A0, Adversary::A1] {
            let Ok(curve) = curve(&mechanism, adversary) else { continue };
            let curve: &dyn Curve = &*curve;
            let name = adversary.name();
            for x in NUMBERS {
                // Below zero or not finite must be refused; the rest answered, or refused with a reason.
                let refusable = !(x >= 0.0 && x.is_finite());
                let must_refuse = |answered: bool| {
                    if answered && refusable { Err("answered".to_string()) } else { Ok(()) }
                };
                questions.ask(format!("{name} delta({x:e})"), || {
                    answer(curve.delta(x), true, |d| within(d, 0.0, 1.0).and(must_refuse(true)))
                });
                questions.ask(format!("{name} point({x:e})"), || {
                    answer(curve.point(x), true, |p| point_is_valid(p).and(must_refuse(true)))
                });
                questions.ask(format!("{name} epsilon({x:e})"), || {
                    let inside = (SMALLEST_DELTA..1.0).contains(&x);
                    answer(curve.epsilon(x), !inside, |e| {
                        within(e, 0.0, f64::INFINITY)?;
                        if inside { Ok(()) } else { Err(format!("answered {e:?}")) }
                    })
                });
                questions.ask(format!("{name} beta({x:e})"), || {
                    // (A rate of 1e-300 may cost more than is allowed.)
                    let inside = (0.0..=1.0).contains(&x);
                    answer(curve.beta(x), true, |b| {
                        within(b, 0.0, 1.0)?;
                        if inside { Ok(()) } else { Err(format!("answered {b:?}")) }
                    })
                });
                questions.ask(format!("{name} mu({x:e})"), || {
                    let inside = x > 0.0 && x < 0.5;
                    answer(curve.mu(x), true, |mu| {
                        within(mu, 0.0, f64::INFINITY)?;
                        if inside { Ok(()) } else { Err(format!("answered {mu:?}")) }
                    })
                });
            }
        }
    });
}

#[test]
fn extreme_but_valid_sizes_are_answered() {
    let most = 1u64 << 53;
    let mut runs = Vec::new();
    for sampling in [subsample, shuffle] {
        for (n, m, s, t, g) in [
            (1, 1, 1, 1, 1),
            (2, 1, 1, 3, 2),
            (512, 512, 1, 2, 512),
            (512, 1, 512, 2, 512),
            (513, 16, 32, 3, 512),
            (1_000_000, 100, 10, 1000, 512),
            (1_000_000, 1, 1000, 1000, 512),
            (1_000_000, 1000, 1, 1000, 512),
            (most, 1, 1, 1_000_000, 1),
            (most, 1 << 26, 1 << 27, 1, 3),
            (most, 1 << 20, 1, 1 << 20, 512),
            (most, 1, 1, 1_000_000_000_000, 512),
            (1000, 5, 2, 1_000_000_000_000, 1),
            (1000, 5, 2, 1_000_000_000_000, 4),
            (60_000, 64, 1, 1_000_000_000, 1),
        ] {
            runs.push(run(sampling(n, m, s), t, Noise::Sigma(2.0), g));
        }
        runs.push(filtered(run(sampling(1000, 1000, 1), 20, Noise::Sigma(2.0), 512)));
    }
    watch(runs, ask_everything);
}

#[test]
fn extreme_but_valid_rates_are_answered() {
    let mut runs = Vec::new();
    for rate in [1e-15, 1e-9, 0.999, 1.0 - f64::EPSILON, 1.0] {
        for (t, g) in [(1, 1), (1000, 1), (1_000_000_000_000, 1), (1000, 512)] {
            runs.push(run(poisson(rate), t, Noise::Sigma(2.0), g));
            runs.push(substituting(run(poisson(rate), t, Noise::Sigma(2.0), g)));
        }
    }
    watch(runs, ask_everything);
}

#[test]
fn extreme_but_valid_noise_is_answered() {
    let mut runs = Vec::new();
    for sigma in [1e-3, 0.02, 0.2, 1e3, 1e6] {
        for sampling in [subsample(1000, 5, 2), shuffle(1000, 5, 2), poisson(0.01), poisson(1.0)] {
            for g in [1, 16] {
                runs.push(run(sampling, 1000, Noise::Sigma(sigma), g));
            }
        }
    }
    watch(runs, ask_everything);
}

#[test]
fn extreme_releases_are_answered() {
    let mut runs = Vec::new();
    for releases in [vec![5e-324], vec![1e-160], vec![1e-9], vec![1e3], vec![1e3; 100], vec![1e-9, 1e3]] {
        for sampling in [subsample(1000, 5, 2), shuffle(1000, 5, 2), poisson(0.01)] {
            let mut config = plain(sampling);
            config.releases = releases.clone();
            runs.push(config);
        }
    }
    watch(runs, ask_everything);
}

#[test]
fn one_two_three_rounds_are_answered() {
    let mut runs = Vec::new();
    for t in 1..=3 {
        for sigma in [0.3, 1.0, 4.0] {
            for sampling in [
                subsample(60_000, 64, 1),
                subsample(100, 5, 10),
                subsample(100, 10, 10),
                shuffle(60_000, 64, 1),
                shuffle(100, 5, 10),
                shuffle(7, 3, 1),
                poisson(0.01),
                poisson(0.5),
            ] {
                for g in [1, 3] {
                    runs.push(run(sampling, t, Noise::Sigma(sigma), g));
                }
                if matches!(sampling, Sampling::Poisson { .. }) {
                    runs.push(substituting(run(sampling, t, Noise::Sigma(sigma), 1)));
                } else {
                    runs.push(filtered(run(sampling, t, Noise::Sigma(sigma), 2)));
                }
            }
        }
    }
    watch(runs, ask_everything);
}

#[test]
fn few_skewed_rounds_are_answered() {
    let runs = [(0.01, 0.5, 50), (0.001, 0.5, 50), (0.01, 0.5, 10), (1e-6, 0.7, 20), (0.1, 0.4, 30)]
        .into_iter()
        .flat_map(|(rate, z, t)| {
            let one = run(poisson(rate), t, Noise::Multiplier(z), 1);
            let subsampled = run(subsample(1_000_000, (1e6 * rate) as u64, 1), t, Noise::Multiplier(z), 1);
            [one.clone(), substituting(one), subsampled]
        })
        .collect();
    watch(runs, ask_everything);
}

#[test]
fn many_phases_are_answered() {
    let mut config = plain(subsample(1000, 5, 2));
    let phase = |i: u64| PhaseConfig {
        sampling: if i.is_multiple_of(2) {
            subsample(1000 + i, 5, 2)
        } else {
            poisson(0.01 + 1e-5 * i as f64)
        },
        length: Length::Rounds(1 + i),
        noise: Noise::Sigma(1.0 + 0.01 * i as f64),
        filtered: false,
    };
    config.phases = (0..40).map(phase).collect();
    let mut short = config.clone();
    short.phases.truncate(3);
    watch(vec![config, short], ask_everything);
}

/// The closed forms take plain numbers: whatever is given they end, and inside their range they answer.
#[test]
fn closed_forms_end() {
    let pairs = NUMBERS.into_iter().flat_map(|a| NUMBERS.map(|b| (a, b))).collect();
    watch(pairs, |&(a, b), questions| {
        let valid = |value: f64, inside: bool, low: f64, high: f64| {
            if !inside || (low..=high).contains(&value) { Ok(()) } else { Err(format!("{value:e}")) }
        };
        let size = a >= 0.0 && a.is_finite();
        let finite = b >= 0.0 && b.is_finite();
        let share = (0.0..=1.0).contains(&b);
        questions
            .ask("gaussian::delta".to_string(), || valid(gaussian::delta(a, b), size && finite, 0.0, 1.0));
        questions.ask("gaussian::tradeoff".to_string(), || {
            valid(gaussian::tradeoff(a, b), size && share, 0.0, 1.0)
        });
        questions.ask("gaussian::epsilon".to_string(), || {
            valid(gaussian::epsilon(a, b), size && share && b > 0.0, 0.0, f64::INFINITY)
        });
        questions.ask("gaussian::mu_of".to_string(), || {
            valid(gaussian::mu_of(a, b), size && share, 0.0, f64::INFINITY)
        });
    });
}
