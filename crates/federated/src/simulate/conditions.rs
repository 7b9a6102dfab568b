//! How fast clients are, and what the network does to them.

use std::fmt;
use std::str::FromStr;

use super::chance::{About, Chance};

/// How long a message travels, in seconds.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub enum Delay {
    /// No time at all.
    #[default]
    None,
    /// Always the same.
    Constant(f64),
    /// The median, and the standard deviation of the logarithm.
    LogNormal(f64, f64),
    /// The mean.
    Exponential(f64),
}

/// A delay that cannot be read.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "delay = {0}: none, constant:SECONDS, exponential:MEAN or lognormal:MEDIAN[,SIGMA]; seconds above 0, sigma \
     at most 5"
)]
pub struct NotADelay(String);

impl FromStr for Delay {
    type Err = NotADelay;

    fn from_str(text: &str) -> Result<Self, NotADelay> {
        let refused = || NotADelay(text.to_owned());
        let number = |text: &str, most: f64| {
            text.trim().parse().ok().filter(|value: &f64| *value > 0.0 && *value <= most).ok_or_else(refused)
        };
        let (name, rest) = text.split_once(':').unwrap_or((text, ""));
        match name {
            "none" if rest.is_empty() => Ok(Self::None),
            "constant" => Ok(Self::Constant(number(rest, 1e6)?)),
            "exponential" => Ok(Self::Exponential(number(rest, 1e6)?)),
            "lognormal" => {
                let (median, sigma) = rest.split_once(',').unwrap_or((rest, "1"));
                Ok(Self::LogNormal(number(median, 1e6)?, number(sigma, 5.0)?))
            }
            _ => Err(refused()),
        }
    }
}

impl fmt::Display for Delay {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Delay::None => f.write_str("none"),
            Delay::Constant(seconds) => write!(f, "constant:{seconds}"),
            Delay::LogNormal(median, sigma) => write!(f, "lognormal:{median},{sigma}"),
            Delay::Exponential(mean) => write!(f, "exponential:{mean}"),
        }
    }
}

impl Delay {
    pub(crate) fn draw(self, chance: Chance, about: About, names: [u64; 3]) -> f64 {
        match self {
            Delay::None => 0.0,
            Delay::Constant(seconds) => seconds,
            Delay::LogNormal(median, sigma) => median * (sigma * chance.normal(about, names)).exp(),
            Delay::Exponential(mean) => -mean * chance.unit(about, names).ln(),
        }
    }
}

/// Speeds, delays and faults. The default is a perfect network and clients of equal speed.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Conditions {
    /// The median time of a round, in seconds.
    pub round_seconds: f64,
    /// The standard deviation of the logarithm of the clients' speeds; 0: all alike.
    pub spread: f64,
    /// How long updates and models travel.
    pub delay: Delay,
    /// The probability that a message is lost: an update, its receipt, or a model on its way to a client.
    pub lost: f64,
    /// The probability that an update arrives twice.
    pub repeated: f64,
    /// The probability that a client crashes during a round.
    pub crash: f64,
    /// The probability that a client is cut off when it begins a round, for about ten rounds.
    pub partition: f64,
    /// The probability that the coordinator is killed after an entry of the log.
    pub coordinator_crash: f64,
    /// How often a new model may begin a round again.
    pub restarts: u32,
    /// Whether a client waits for a newer model after each of its updates.
    pub synchronous: bool,
    /// How many entries of the log are folded before the state is saved and a model published.
    pub save_every: u64,
    /// How many clients, the first ones, send the opposite of their update.
    pub attackers: u64,
}

impl Conditions {
    /// Refuses what cannot be simulated, in a sentence.
    pub fn check(&self) -> Result<(), String> {
        let shares = [
            ("lost", self.lost),
            ("repeated", self.repeated),
            ("crash", self.crash),
            ("partition", self.partition),
            ("coordinator-crash", self.coordinator_crash),
        ];
        for (name, value) in shares {
            if !(0.0..=0.9).contains(&value) {
                return Err(format!("{name} = {value}: a probability, at most 0.9"));
            }
        }
        if !(self.round_seconds > 0.0 && self.round_seconds <= 1e6) {
            return Err(format!("round-seconds = {}: above 0, at most 1e6", self.round_seconds));
        }
        if !(0.0..=5.0).contains(&self.spread) {
            return Err(format!("spread = {}: between 0 and 5", self.spread));
        }
        Ok(())
    }
}

impl Default for Conditions {
    fn default() -> Self {
        Self {
            round_seconds: 1.0,
            spread: 0.0,
            delay: Delay::None,
            lost: 0.0,
            repeated: 0.0,
            crash: 0.0,
            partition: 0.0,
            coordinator_crash: 0.0,
            restarts: 0,
            synchronous: false,
            save_every: 1,
            attackers: 0,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn delays_are_read_as_they_are_written() {
        for text in ["none", "constant:0.5", "exponential:2", "lognormal:0.1,0.5"] {
            assert_eq!(text.parse::<Delay>().unwrap().to_string(), text);
        }
        assert_eq!("lognormal:3".parse(), Ok(Delay::LogNormal(3.0, 1.0)));
        for wrong in ["", "often", "none:1", "constant:", "constant:-1", "lognormal:1,NaN", "lognormal:1,9"] {
            assert!(wrong.parse::<Delay>().is_err(), "{wrong}");
        }
    }
}
