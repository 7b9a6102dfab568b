//! Canaries in a real training run: samples whose gradient is one long coordinate, which nobody else uses on
//! purpose.

use std::collections::HashMap;
use std::sync::Arc;

use dpsgd_train::{Model, ModelError, Worker};

/// A canary: its coordinate and its form.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Canary {
    /// j.
    pub coordinate: usize,
    /// What its gradient has there; nothing elsewhere.
    pub value: f32,
}

/// A model some of whose samples are canaries; the others are what they were.
pub struct Canaried<M> {
    model: Arc<M>,
    canaries: HashMap<u32, Canary>,
}

impl<M: Model> Canaried<M> {
    /// The samples named in `canaries` are canaries. Coordinates are below the model's dimension.
    pub fn new(model: Arc<M>, canaries: HashMap<u32, Canary>) -> Self {
        debug_assert!(canaries.values().all(|canary| canary.coordinate < model.dimension()));
        Self { model, canaries }
    }
}

impl<M: Model> Model for Canaried<M> {
    type Worker = CanariedWorker<M>;

    fn dimension(&self) -> usize {
        self.model.dimension()
    }

    fn samples(&self) -> usize {
        self.model.samples()
    }

    fn separable(&self) -> bool {
        self.model.separable()
    }

    fn is_random(&self) -> bool {
        self.model.is_random()
    }

    fn worker(self: &Arc<Self>, group_size: usize) -> Result<CanariedWorker<M>, ModelError> {
        Ok(CanariedWorker {
            worker: self.model.worker(group_size)?,
            model: self.clone(),
            seeds: Vec::new(),
            others: Vec::new(),
            gradient: Vec::new(),
        })
    }
}

/// The state of one thread.
pub struct CanariedWorker<M: Model> {
    worker: M::Worker,
    model: Arc<Canaried<M>>,
    /// Those of the groups of the next call; none if the model is not random.
    seeds: Vec<u64>,
    others: Vec<u32>,
    gradient: Vec<f32>,
}

impl<M: Model> Worker for CanariedWorker<M> {
    fn weights_mut(&mut self) -> &mut [f32] {
        self.worker.weights_mut()
    }

    fn seed(&mut self, seeds: &[u64]) {
        self.seeds.clear();
        self.seeds.extend_from_slice(seeds);
        self.worker.seed(seeds);
    }

    fn gradient(&mut self, group: &[u32], gradient: &mut [f32]) -> Result<f32, ModelError> {
        self.others.clear();
        self.others.extend(group.iter().filter(|sample| !self.model.canaries.contains_key(sample)));
        if self.others.len() == group.len() {
            return self.worker.gradient(group, gradient);
        }
        let share = 1.0 / group.len() as f32;
        let mut loss = 0.0;
        if self.others.is_empty() {
            gradient.fill(0.0);
        } else {
            let part = self.others.len() as f32 * share;
            loss = part * self.worker.gradient(&self.others, gradient)?;
            gradient.iter_mut().for_each(|value| *value *= part);
        }
        for canary in group.iter().filter_map(|sample| self.model.canaries.get(sample)) {
            gradient[canary.coordinate] += share * canary.value;
        }
        Ok(loss)
    }

    fn add_scaled(
        &mut self,
        samples: &[u32],
        size: usize,
        scale: &mut dyn FnMut(f32) -> f32,
        sum: &mut [f32],
    ) -> Result<f32, ModelError> {
        let mut losses = 0.0;
        let mut rest = samples;
        while !rest.is_empty() {
            if let Some(seeds) = self.seeds.get((samples.len() - rest.len()) / size..) {
                self.worker.seed(seeds);
            }
            // As many groups without a canary as there are, the fast way.
            let held = |group: &[u32]| group.iter().any(|sample| self.model.canaries.contains_key(sample));
            let free = rest.chunks(size).take_while(|group| !held(group)).map(<[u32]>::len).sum::<usize>();
            let (plain, others) = rest.split_at(free);
            if !plain.is_empty() {
                losses += self.worker.add_scaled(plain, size, scale, sum)?;
            }
            let (group, others) = others.split_at(size.min(others.len()));
            if !group.is_empty() {
                if let Some(seeds) = self.seeds.get((samples.len() - others.len() - group.len()) / size..) {
                    self.worker.seed(seeds);
                }
                let mut gradient = std::mem::take(&mut self.gradient);
                gradient.resize(sum.len(), 0.0);
                losses += self.gradient(group, &mut gradient)?;
                let factor = scale(dpsgd_train::clip::norm(&gradient) as f32);
                if factor != 0.0 {
                    sum.iter_mut().zip(&gradient).for_each(|(sum, g)| *sum += factor * g);
                }
                self.gradient = gradient;
            }
            rest = others;
        }
        Ok(losses)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Sample i has the gradient (i, 1, 0).
    struct Plain;

    impl Model for Plain {
        type Worker = Plain;
        fn dimension(&self) -> usize {
            3
        }
        fn samples(&self) -> usize {
            10
        }
        fn worker(self: &Arc<Self>, _group_size: usize) -> Result<Plain, ModelError> {
            Ok(Plain)
        }
    }

    impl Worker for Plain {
        fn weights_mut(&mut self) -> &mut [f32] {
            &mut []
        }
        fn gradient(&mut self, group: &[u32], gradient: &mut [f32]) -> Result<f32, ModelError> {
            let mean = group.iter().sum::<u32>() as f32 / group.len() as f32;
            gradient.copy_from_slice(&[mean, 1.0, 0.0]);
            Ok(1.0)
        }
    }

    #[test]
    fn only_the_canaries_are_others() {
        let canaries = HashMap::from([
            (2, Canary { coordinate: 2, value: 8.0 }),
            (5, Canary { coordinate: 0, value: -4.0 }),
        ]);
        let model = Arc::new(Canaried::new(Arc::new(Plain), canaries));
        let mut worker = model.worker(2).unwrap();
        let mut gradient = vec![0.0; 3];
        for (group, expected) in [
            (vec![1, 3], [2.0, 1.0, 0.0]),
            (vec![2], [0.0, 0.0, 8.0]),
            (vec![2, 4], [2.0, 0.5, 4.0]),
            (vec![5, 2], [-2.0, 0.0, 4.0]),
        ] {
            worker.gradient(&group, &mut gradient).unwrap();
            assert_eq!(gradient, expected, "{group:?}");
        }
        // In groups of one and of two, with the norm of every group in order, as without the fast way.
        for size in [1, 2] {
            let samples = [1, 3, 2, 4, 5, 2, 6, 7];
            let (mut sum, mut norms) = (vec![0.0; 3], Vec::new());
            worker.add_scaled(&samples, size, &mut |norm| (norms.push(norm), 0.5).1, &mut sum).unwrap();
            let mut expected = [0.0; 3];
            for (group, norm) in samples.chunks(size).zip(&norms) {
                worker.gradient(group, &mut gradient).unwrap();
                assert_eq!(*norm, dpsgd_train::clip::norm(&gradient) as f32);
                expected.iter_mut().zip(&gradient).for_each(|(sum, g)| *sum += 0.5 * g);
            }
            assert_eq!((sum, norms.len()), (expected.to_vec(), 8 / size));
        }
    }
}
