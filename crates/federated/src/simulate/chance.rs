//! Chance from a seed: every draw is named, so that no draw depends on the order in which others are made.

/// Draws of a simulation. Not for anything private: the noise of clients has its own source.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Chance(pub(crate) u64);

/// What a draw is for.
#[derive(Clone, Copy, Debug)]
pub(crate) enum About {
    Speed = 1,
    Uplink,
    Downlink,
    LostUpdate,
    LostReceipt,
    LostModel,
    Repeated,
    Crash,
    Downtime,
    Partition,
    CoordinatorCrash,
}

/// SplitMix64 (Steele, Lea and Flood 2014).
fn mixed(word: u64) -> u64 {
    let z = word.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

impl Chance {
    fn bits(self, about: About, names: [u64; 3]) -> u64 {
        names.into_iter().fold(mixed(self.0 ^ mixed(about as u64)), |word, name| mixed(word ^ mixed(name)))
    }

    /// Uniform in (0, 1).
    pub(crate) fn unit(self, about: About, names: [u64; 3]) -> f64 {
        ((self.bits(about, names) >> 12) as f64 + 0.5) / (1u64 << 52) as f64
    }

    /// True with this probability.
    pub(crate) fn happens(self, probability: f64, about: About, names: [u64; 3]) -> bool {
        probability > 0.0 && self.unit(about, names) < probability
    }

    /// Standard normal (Box and Muller 1958).
    pub(crate) fn normal(self, about: About, names: [u64; 3]) -> f64 {
        let bits = self.bits(about, names);
        let unit = |word: u64| ((word >> 12) as f64 + 0.5) / (1u64 << 52) as f64;
        let (radius, angle) = (unit(bits), unit(mixed(bits)));
        (-2.0 * radius.ln()).sqrt() * (std::f64::consts::TAU * angle).cos()
    }
}
