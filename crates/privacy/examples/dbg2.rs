use dpsgd_privacy::{adversary::*, curve::Curve, mechanism::*};
fn main() {
    let r = RunConfig::single(PhaseConfig {
        sampling: Sampling::Poisson { rate: 0.003 },
        length: Length::Rounds(100),
        noise: Noise::Sigma(1.5943797803101951),
        filtered: false,
    });
    let m = r.check().unwrap();
    for a in [Adversary::A0, Adversary::A1] {
        let c = curve(&m, a).unwrap();
        let t = std::time::Instant::now();
        println!(
            "{a:?} {:?} {:?} d(1) {:?} d(0) {:?} {:?}",
            c.epsilon(1e-1),
            c.epsilon(1e-5),
            c.delta(1.0),
            c.delta(0.0),
            t.elapsed()
        );
    }
}
