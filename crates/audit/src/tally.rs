//! What the trials of an audit add up to, for the checks of noise and sampling.

use std::collections::BTreeMap;

use crate::pair::FREE;

/// The edges between the bins of the noise, in deviations: from −4 to 4 by quarters.
pub const EDGES: usize = 33;

/// The edge of a number.
pub fn edge(index: usize) -> f64 {
    -4.0 + 0.25 * index as f64
}

/// Σ xy over n pairs that should be independent.
#[derive(Clone, Copy, Debug, Default)]
pub struct Products {
    /// Σ xy.
    pub sum: f64,
    /// n.
    pub pairs: u64,
}

impl Products {
    fn add(&mut self, x: &[f64], y: &[f64]) {
        self.sum += x.iter().zip(y).map(|(x, y)| x * y).sum::<f64>();
        self.pairs += x.len() as u64;
    }

    fn merge(&mut self, other: Self) {
        self.sum += other.sum;
        self.pairs += other.pairs;
    }
}

/// The sums. Every count is over the rounds of all trials, of D and of D'.
#[derive(Clone, Debug)]
pub struct Tally {
    /// Noise values below the first edge, between the edges, and above the last.
    pub bins: [u64; EDGES + 1],
    /// Σ x² of the noise, in deviations.
    pub squares: f64,
    /// Values in both.
    pub values: u64,
    /// Rounds 2i and 2i+1; rounds 2i+1 and 2i+2; coordinates 2j and 2j+1 of a round.
    pub products: [Products; 3],
    /// Rounds whose noise is, coordinate by coordinate, that of another round of the same run.
    pub repeated: u64,
    /// Rounds.
    pub rounds: u64,
    /// Epochs begun (for shuffling and allocation).
    pub epochs: u64,
    /// How often each sample was used.
    pub used: Vec<u64>,
    /// Groups.
    pub groups: u64,
    /// Rounds whose number of groups was impossible.
    pub misshapen: u64,
    /// Samples used twice where once is the most: in a round, or in an epoch of shuffling or allocation.
    pub twice: u64,
    /// Rounds with k hit groups.
    pub hits: Vec<u64>,
    /// Of the pairs of rounds 2i and 2i+1: how many there are, and how often both were hit.
    pub hit_pairs: (u64, u64),
    /// c² of every run.
    pub exposure: BTreeMap<u64, u64>,
    /// c² of every whole epoch of shuffling or allocation.
    pub epoch_exposure: BTreeMap<u64, u64>,
    /// Of the pairs of epochs 2i and 2i+1: how many there are, and how often sample 0 was in the same round
    /// of both.
    pub same_round: (u64, u64),
    /// For every round of a whole epoch: in how many epochs it used sample 0.
    pub places: Vec<u64>,
    /// For every round of an epoch: how often it used which number of samples.
    pub sizes: Vec<BTreeMap<u64, u64>>,
}

impl Tally {
    /// Nothing yet, of `samples` samples.
    pub fn new(samples: usize) -> Self {
        Self {
            bins: [0; EDGES + 1],
            squares: 0.0,
            values: 0,
            products: [Products::default(); 3],
            repeated: 0,
            rounds: 0,
            epochs: 0,
            used: vec![0; samples],
            groups: 0,
            misshapen: 0,
            twice: 0,
            hits: Vec::new(),
            hit_pairs: (0, 0),
            exposure: BTreeMap::new(),
            epoch_exposure: BTreeMap::new(),
            same_round: (0, 0),
            places: Vec::new(),
            sizes: Vec::new(),
        }
    }

    /// The noise of all rounds of a run, in deviations.
    pub fn see_noise(&mut self, run: &[[f64; FREE]]) {
        for (round, values) in run.iter().enumerate() {
            for &x in values {
                // Bins of equal width: the place is a product, not a search.
                let place = ((x + 4.0) * 4.0).floor() + 1.0;
                self.bins[place.clamp(0.0, EDGES as f64) as usize] += 1;
                self.squares += x * x;
            }
            self.values += FREE as u64;
            if round > 0 {
                self.products[(round + 1) % 2].add(&run[round - 1], values);
            }
            for pair in values.chunks_exact(2) {
                self.products[2].add(&pair[..1], &pair[1..]);
            }
        }
        // To 2⁻¹² of a deviation, so that a C that changes cannot hide it. That two different rounds agree in
        // FREE = 8 values by chance has probability below (2⁻¹²·0.3)⁸ < 1e-33.
        let mut keys: Vec<[i32; FREE]> = run.iter().map(|x| x.map(|x| (x * 4096.0).round() as i32)).collect();
        keys.sort_unstable();
        self.repeated += keys.windows(2).filter(|pair| pair[0] == pair[1]).count() as u64;
    }

    /// The round of a whole epoch in which sample 0 was used.
    pub fn see_place(&mut self, round_of_epoch: u64) {
        let round = round_of_epoch as usize;
        if self.places.len() <= round {
            self.places.resize(round + 1, 0);
        }
        self.places[round] += 1;
    }

    /// How many samples a round of an epoch used.
    pub fn see_size(&mut self, round_of_epoch: u64, samples: u64) {
        let round = round_of_epoch as usize;
        if self.sizes.len() <= round {
            self.sizes.resize(round + 1, BTreeMap::new());
        }
        *self.sizes[round].entry(samples).or_default() += 1;
    }

    /// How many groups of the next round were hit.
    pub fn see_hits(&mut self, hit: u32) {
        if self.hits.len() <= hit as usize {
            self.hits.resize(hit as usize + 1, 0);
        }
        self.hits[hit as usize] += 1;
        self.rounds += 1;
    }

    /// Adds what another thread saw.
    pub fn merge(&mut self, other: &Self) {
        let add = |mine: &mut [u64], theirs: &[u64]| mine.iter_mut().zip(theirs).for_each(|(a, b)| *a += b);
        add(&mut self.bins, &other.bins);
        self.squares += other.squares;
        self.values += other.values;
        for (mine, theirs) in self.products.iter_mut().zip(other.products) {
            mine.merge(theirs);
        }
        self.repeated += other.repeated;
        self.rounds += other.rounds;
        self.epochs += other.epochs;
        add(&mut self.used, &other.used);
        self.groups += other.groups;
        self.misshapen += other.misshapen;
        self.twice += other.twice;
        for (mine, theirs) in [(&mut self.hits, &other.hits), (&mut self.places, &other.places)] {
            mine.resize(mine.len().max(theirs.len()), 0);
            add(mine, theirs);
        }
        let pairs =
            |mine: &mut (u64, u64), theirs: (u64, u64)| *mine = (mine.0 + theirs.0, mine.1 + theirs.1);
        pairs(&mut self.hit_pairs, other.hit_pairs);
        pairs(&mut self.same_round, other.same_round);
        self.sizes.resize(self.sizes.len().max(other.sizes.len()), BTreeMap::new());
        let tables =
            [(&mut self.exposure, &other.exposure), (&mut self.epoch_exposure, &other.epoch_exposure)];
        for (mine, theirs) in tables.into_iter().chain(self.sizes.iter_mut().zip(&other.sizes)) {
            for (value, count) in theirs {
                *mine.entry(*value).or_default() += count;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_are_in_their_bins() {
        let mut tally = Tally::new(1);
        let run = [[-9.0, -4.0, -3.9, 0.1, 0.25, 3.99, 4.0, 9.0]];
        tally.see_noise(&run);
        for x in run[0] {
            let below = (0..EDGES).filter(|&i| edge(i) <= x).count();
            assert!(tally.bins[below] > 0, "{x}");
        }
        assert_eq!(tally.bins.iter().sum::<u64>(), 8);
        assert_eq!(tally.repeated, 0);
        tally.see_noise(&[run[0], [0.5; 8], run[0]]);
        assert_eq!(tally.repeated, 1);
    }
}
