use dpsgd_privacy::{adversary::*, curve::Curve, mechanism::*};
fn main(){
    let a:Vec<f64>=std::env::args().skip(1).map(|x|x.parse().unwrap()).collect();
    let mut r=RunConfig::single(PhaseConfig{sampling:Sampling::Poisson{rate:a[0]},length:Length::Rounds(a[2] as u64),noise:Noise::Multiplier(a[1]),filtered:false});
    r.differing=a[3] as u64;
    let m=r.check().unwrap();
    let c=curve(&m,Adversary::A0).unwrap();
    println!("{:?}",c.epsilon(a[4]));
}
