//! Every random draw of a run: independent ChaCha20 streams under one key that nobody sees.
//!
//! A stream is named by what it is for and by the epoch or round it belongs to, so that no draw
//! depends on how many threads there are or on what was drawn before.

use std::fmt;

use chacha20::ChaCha20Rng;
use chacha20::rand_core::{Rng, SeedableRng};
use dpsgd_kernels::{Level, chacha};
use zeroize::Zeroizing;

/// What a stream is for. Different purposes never share a random bit.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Purpose {
    /// The initial weights; indexed as the caller likes.
    Initialisation = 1,
    /// The noise of the private normalisation of the data; indexed as the caller likes.
    Normalisation = 2,
    /// The permutation of an epoch (shuffling); indexed by epoch.
    Permutation = 3,
    /// The samples of a round (subsampling, Poisson); indexed by round.
    Sampling = 4,
    /// Which groups of a round are kept (filtering); indexed by round.
    Filter = 5,
    /// The Gaussian noise of a round; indexed by round.
    Noise = 6,
    /// Splitting data into parts, and whatever else comes before training.
    Splitting = 7,
    /// Further bits of the uniform numbers of a round's noise, where the first do not decide; indexed by
    /// round.
    Refinement = 8,
    /// The units in which the groups of a round are summed (Poisson, allocation, filtering); indexed by
    /// round.
    Units = 9,
    /// The random bits of inner algorithms; indexed by round.
    Inner = 10,
    /// The round that each sample draws (allocation); indexed by epoch.
    Allocation = 11,
    /// The random bits of models (dropout); indexed by round.
    Model = 12,
    /// The views of samples that a model takes gradients of; indexed by round.
    Views = 13,
}

/// The bits of a stream's name that hold its index: rounds up to 2⁵⁶.
const INDEX_BITS: u32 = 56;
/// Words of a block of the cipher.
const BLOCK_WORDS: u64 = 16;

/// The operating system gave no random bytes.
#[derive(Clone, Debug, thiserror::Error)]
#[non_exhaustive]
#[error("the operating system gave no random bytes ({0}): without them a run cannot be private")]
pub struct NoEntropy(String);

/// The key of a run and whether anybody else could know it.
///
/// # Guarantee
///
/// With [`Randomness::from_system`] the key has 256 bits from the operating system, is wiped when
/// dropped, and is neither stored nor printed: there is no accessor and `Debug` hides it. Streams
/// of different (purpose, index) are different ChaCha20 streams (64-bit nonces), so noise is never
/// drawn twice for the same round; a resumed run takes a fresh key. A seeded run is reproducible
/// and therefore not private: whoever knows or guesses the seed can subtract the noise.
pub struct Randomness {
    key: Zeroizing<[u8; 32]>,
    private: bool,
    /// The process that drew the key.
    process: u32,
}

impl Randomness {
    /// A fresh key from the operating system: the only choice for a private run.
    pub fn from_system() -> Result<Self, NoEntropy> {
        let mut key = Zeroizing::new([0; 32]);
        getrandom::fill(key.as_mut()).map_err(|error| NoEntropy(error.to_string()))?;
        Ok(Self { key, private: true, process: std::process::id() })
    }

    /// A key that anybody can repeat: for experiments, never for private runs.
    ///
    /// `resumed` counts how often the run was continued: every continuation has streams of its
    /// own, so that a round that was charged, lost and is passed over never lends its noise to
    /// another batch.
    pub fn from_seed(seed: u64, resumed: u64) -> Self {
        let mut key = Zeroizing::new(*b"................dpsgd seeded run");
        key[..8].copy_from_slice(&seed.to_le_bytes());
        key[8..16].copy_from_slice(&resumed.to_le_bytes());
        Self { key, private: false, process: std::process::id() }
    }

    /// Whether the key came from the operating system. If not, every output of the run must say
    /// "reproducible, not private".
    pub fn is_private(&self) -> bool {
        self.private
    }

    /// Whether this process drew the key. After a fork two processes hold it, and what one of them draws the
    /// other would draw again: [`Trainer::round`](crate::Trainer::round) refuses.
    pub fn is_of_this_process(&self) -> bool {
        self.process == std::process::id()
    }

    /// The stream of a purpose and an index (round, epoch …; below 2⁵⁶).
    pub fn stream(&self, purpose: Purpose, index: u64) -> Stream {
        let mut generator = ChaCha20Rng::from_seed(*self.key);
        generator.set_stream(name(purpose, index));
        Stream { generator }
    }

    /// Fills `words` with a stream's bits from its word `first` on: those of [`Stream::seek`] and
    /// [`Stream::fill`], but many blocks of the cipher at a time where the machine can do that.
    pub(crate) fn fill(&self, purpose: Purpose, index: u64, first: u64, words: &mut [u32]) {
        if first.is_multiple_of(BLOCK_WORDS) && words.len().is_multiple_of(chacha::BATCH) {
            let mut key = Zeroizing::new([0; 8]);
            for (word, four) in key.iter_mut().zip(self.key.as_chunks::<4>().0) {
                *word = u32::from_le_bytes(*four);
            }
            if chacha::keystream(Level::best(), &key, name(purpose, index), first / BLOCK_WORDS, words) {
                return;
            }
        }
        let mut stream = self.stream(purpose, index);
        stream.seek(first);
        stream.fill(words);
    }
}

/// The name of a stream: the nonce of the cipher.
fn name(purpose: Purpose, index: u64) -> u64 {
    debug_assert!(index < 1 << INDEX_BITS);
    ((purpose as u64) << INDEX_BITS) | index
}

impl fmt::Debug for Randomness {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Randomness").field("private", &self.private).finish_non_exhaustive()
    }
}

/// Uniform draws from one stream.
pub struct Stream {
    generator: ChaCha20Rng,
}

impl Stream {
    /// Continues at a 32-bit word counted from the beginning of the stream.
    pub fn seek(&mut self, word: u64) {
        self.generator.set_word_pos(u128::from(word));
    }

    /// 32 uniform bits.
    pub fn bits32(&mut self) -> u32 {
        self.generator.next_u32()
    }

    /// 64 uniform bits.
    pub fn bits64(&mut self) -> u64 {
        self.generator.next_u64()
    }

    /// Fills `words` with uniform bits.
    pub fn fill(&mut self, words: &mut [u32]) {
        let mut bytes = [0; 1024];
        for part in words.chunks_mut(256) {
            let bytes = &mut bytes[..4 * part.len()];
            self.generator.fill_bytes(bytes);
            for (word, four) in part.iter_mut().zip(bytes.as_chunks::<4>().0) {
                *word = u32::from_le_bytes(*four);
            }
        }
    }

    /// A uniform integer below `bound`, which must be positive.
    ///
    /// Lemire's multiplication with rejection (ACM TOMACS 29:3, 2019): exactly uniform.
    pub fn below(&mut self, bound: u32) -> u32 {
        let mut wide = u64::from(self.bits32()) * u64::from(bound);
        if (wide as u32) < bound {
            let threshold = bound.wrapping_neg() % bound;
            while (wide as u32) < threshold {
                wide = u64::from(self.bits32()) * u64::from(bound);
            }
        }
        (wide >> 32) as u32
    }

    /// A uniform multiple of 2⁻⁵³ in [0, 1).
    pub fn unit(&mut self) -> f64 {
        (self.bits64() >> 11) as f64 * (0.5f64).powi(53)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn debug_hides_the_key() {
        let randomness = Randomness::from_seed(0x1122_3344_5566_7788, 0);
        assert_eq!(format!("{randomness:?}"), "Randomness { private: false, .. }");
    }

    /// A fork copies the memory and changes the number of the process.
    #[test]
    fn a_copy_in_another_process_is_noticed() {
        let mut randomness = Randomness::from_system().unwrap();
        assert!(randomness.is_of_this_process());
        randomness.process ^= 1;
        assert!(!randomness.is_of_this_process());
    }

    #[test]
    fn system_keys_differ_and_are_private() {
        let (a, b) = (Randomness::from_system().unwrap(), Randomness::from_system().unwrap());
        assert!(a.is_private() && b.is_private());
        // Equal with probability 2⁻⁶⁴.
        assert_ne!(a.stream(Purpose::Noise, 0).bits64(), b.stream(Purpose::Noise, 0).bits64());
    }

    #[test]
    fn every_name_is_another_stream() {
        let mut firsts = std::collections::HashSet::new();
        let mut count = 0;
        for (seed, resumed) in [(0, 0), (1, 0), (0, 1), (1, 1)] {
            let randomness = Randomness::from_seed(seed, resumed);
            for purpose in [
                Purpose::Permutation,
                Purpose::Sampling,
                Purpose::Filter,
                Purpose::Noise,
                Purpose::Allocation,
                Purpose::Model,
            ] {
                for index in [0, 1, 2, (1 << 40) - 1, 1 << 40, (1 << 56) - 1] {
                    firsts.insert(randomness.stream(purpose, index).bits64());
                    count += 1;
                }
            }
        }
        // Two of these 144 words agree by chance with probability below 1e-15.
        assert_eq!(firsts.len(), count);
    }

    #[test]
    fn filling_and_seeking_read_the_same_stream() {
        let randomness = Randomness::from_seed(3, 0);
        let mut whole = vec![0; 1000];
        randomness.stream(Purpose::Noise, 9).fill(&mut whole);
        let mut one_by_one = randomness.stream(Purpose::Noise, 9);
        assert!(whole.iter().all(|&word| word == one_by_one.bits32()));
        let mut later = vec![0; 300];
        let mut stream = randomness.stream(Purpose::Noise, 9);
        stream.seek(517);
        stream.fill(&mut later);
        assert_eq!(later, whole[517..817]);
    }

    /// The fast way and the library's, word by word: whole batches and others, at positions that are a
    /// block's beginning and others, beyond the 32 bits of a counter's first word.
    #[test]
    fn many_blocks_at_a_time_are_the_same_stream() {
        let randomness = Randomness::from_seed(4, 7);
        for (index, first) in [(0, 0), (9, 16), (9, 17), ((1 << 56) - 1, 4096), (1, 16 * ((1 << 32) - 3))] {
            for length in [chacha::BATCH, 3 * chacha::BATCH, 4096, 100] {
                let (mut fast, mut slow) = (vec![0; length], vec![0; length]);
                randomness.fill(Purpose::Noise, index, first, &mut fast);
                let mut stream = randomness.stream(Purpose::Noise, index);
                stream.seek(first);
                stream.fill(&mut slow);
                assert!(fast == slow, "{index} {first} {length}");
            }
        }
    }

    #[test]
    fn the_cipher_is_chacha20() {
        // RFC 8439, A.1 test vector 1: key, nonce and counter zero.
        let mut generator = ChaCha20Rng::from_seed([0; 32]);
        assert_eq!(generator.next_u32(), 0xade0_b876);
    }
}
