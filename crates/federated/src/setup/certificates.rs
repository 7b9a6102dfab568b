//! A certificate authority for one federation, and a certificate for each of its members.

use rcgen::{
    BasicConstraints, CertificateParams, CertifiedIssuer, DistinguishedName, DnType, ExtendedKeyUsagePurpose,
    IsCa, KeyPair, KeyUsagePurpose,
};

/// A certificate and its private key, both PEM.
#[derive(Clone)]
pub struct Certified {
    /// The certificate.
    pub certificate: String,
    /// The private key: whoever reads it is this member.
    pub key: String,
}

/// The authority that the broker and all members trust, and nobody else. Its key exists in memory only: a
/// federation gets new members by a new set-up.
pub struct Authority(CertifiedIssuer<'static, KeyPair>);

impl Authority {
    /// A fresh authority with a P-256 key.
    pub fn new(run: &str) -> Result<Self, rcgen::Error> {
        let mut params = CertificateParams::new(Vec::new())?;
        params.distinguished_name = named(&format!("dpsgd federation {run}"));
        params.is_ca = IsCa::Ca(BasicConstraints::Constrained(0));
        params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
        Ok(Self(CertifiedIssuer::self_signed(params, KeyPair::generate()?)?))
    }

    /// The authority's own certificate, PEM.
    pub fn pem(&self) -> String {
        self.0.pem()
    }

    /// A certificate for the broker under the names and addresses by which members dial it.
    pub fn broker(&self, hosts: &[String]) -> Result<Certified, rcgen::Error> {
        let mut params = CertificateParams::new(hosts.to_vec())?;
        params.distinguished_name = named("broker");
        params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth];
        self.signed(params)
    }

    /// A certificate by which the broker knows a member: its common name is the user of the broker's
    /// configuration.
    pub fn member(&self, name: &str) -> Result<Certified, rcgen::Error> {
        let mut params = CertificateParams::new(Vec::new())?;
        params.distinguished_name = named(name);
        params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ClientAuth];
        self.signed(params)
    }

    fn signed(&self, mut params: CertificateParams) -> Result<Certified, rcgen::Error> {
        params.key_usages = vec![KeyUsagePurpose::DigitalSignature];
        params.use_authority_key_identifier_extension = true;
        let key = KeyPair::generate()?;
        let certificate = params.signed_by(&key, &self.0)?;
        Ok(Certified { certificate: certificate.pem(), key: key.serialize_pem() })
    }
}

fn named(name: &str) -> DistinguishedName {
    let mut names = DistinguishedName::new();
    names.push(DnType::CommonName, name);
    names
}
