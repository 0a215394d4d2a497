//! How TCP connections are encrypted: TLS 1.3 first, Noise for whoever does not speak it.
//!
//! Both are libp2p's and prove the same, which peer is at the other end. Noise knows only
//! ChaCha20-Poly1305, of which a core does 1.7 GB a second; TLS takes AES-GCM, and a core with
//! instructions for it does several times as much. Certificates and their checks are those of
//! `libp2p-tls`. What is ours is the dialler's order of ciphers, which decides: there,
//! ChaCha20 comes first.

use std::{
    io,
    net::Ipv4Addr,
    sync::{Arc, OnceLock},
};

use futures::{
    AsyncRead, AsyncWrite, FutureExt,
    future::{BoxFuture, Either},
};
use futures_rustls::{
    TlsAcceptor, TlsConnector, TlsStream,
    pki_types::{CertificateDer, ServerName, UnixTime},
    rustls::{
        self, ClientConfig, DigitallySignedStruct, DistinguishedName, ServerConfig,
        SignatureScheme, SupportedCipherSuite,
        client::{
            ResolvesClientCert, Resumption,
            danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier},
        },
        crypto::{
            CryptoProvider,
            aws_lc_rs::{self, cipher_suite, kx_group},
        },
        server::{
            ResolvesServerCert,
            danger::{ClientCertVerified, ClientCertVerifier},
        },
        version::TLS13,
    },
};
use libp2p::{
    PeerId,
    core::upgrade::{InboundConnectionUpgrade, OutboundConnectionUpgrade, UpgradeInfo},
    identity::Keypair,
    noise,
    tls::{self, certificate},
};

use super::joined::Joined;

const TLS: &str = "/tls/1.0.0";
const NOISE: &str = "/noise";

/// A connection that is encrypted one way or the other.
pub type Secured<C> = Either<Joined<TlsStream<C>>, noise::Output<C>>;

#[derive(Clone)]
pub struct Security {
    noise: noise::Config,
    tls: Arc<Tls>,
}

impl Security {
    pub fn new(key: &Keypair) -> io::Result<Security> {
        let noise = noise::Config::new(key).map_err(io::Error::other)?;
        Ok(Security { noise, tls: Arc::new(Tls::new(key)?) })
    }

    pub fn noise(&self) -> noise::Config {
        self.noise.clone()
    }
}

/// What all TLS connections of a node have in common.
struct Tls {
    provider: Arc<CryptoProvider>,
    alpn: Vec<Vec<u8>>,
    as_dialler: Arc<dyn ResolvesClientCert>,
    as_listener: Arc<dyn ResolvesServerCert>,
}

impl Tls {
    fn new(key: &Keypair) -> io::Result<Tls> {
        let dialler = tls::make_client_config(key, None).map_err(io::Error::other)?;
        let listener = tls::make_server_config(key).map_err(io::Error::other)?;
        let provider = CryptoProvider {
            cipher_suites: ciphers(),
            // As in Noise. More would make each connection dearer, not its proof better.
            kx_groups: vec![kx_group::X25519, kx_group::X25519MLKEM768],
            ..aws_lc_rs::default_provider()
        };
        Ok(Tls {
            provider: Arc::new(provider),
            alpn: dialler.alpn_protocols,
            as_dialler: dialler.client_auth_cert_resolver,
            as_listener: listener.cert_resolver,
        })
    }

    fn client(&self, other_end: Arc<OtherEnd>) -> Result<ClientConfig, rustls::Error> {
        let mut config = ClientConfig::builder_with_provider(self.provider.clone())
            .with_protocol_versions(&[&TLS13])?
            .dangerous()
            .with_custom_certificate_verifier(other_end)
            .with_client_cert_resolver(self.as_dialler.clone());
        config.alpn_protocols = self.alpn.clone();
        // All peers have the same name here, none: a session of one would be offered to another.
        config.resumption = Resumption::disabled();
        Ok(config)
    }

    fn server(&self, other_end: Arc<OtherEnd>) -> Result<ServerConfig, rustls::Error> {
        let mut config = ServerConfig::builder_with_provider(self.provider.clone())
            .with_protocol_versions(&[&TLS13])?
            .with_client_cert_verifier(other_end)
            .with_cert_resolver(self.as_listener.clone());
        config.alpn_protocols = self.alpn.clone();
        config.send_tls13_tickets = 0;
        Ok(config)
    }

    async fn dial<C>(&self, socket: C) -> io::Result<(PeerId, TlsStream<C>)>
    where
        C: AsyncRead + AsyncWrite + Unpin,
    {
        let other_end = Arc::new(OtherEnd::default());
        let config = self.client(other_end.clone()).map_err(io::Error::other)?;
        // An address without a name: libp2p's TLS says nothing of whom it expects.
        let nobody = ServerName::from(Ipv4Addr::UNSPECIFIED);
        let stream = TlsConnector::from(Arc::new(config)).connect(nobody, socket).await?;
        Ok((other_end.peer()?, stream.into()))
    }

    async fn accept<C>(&self, socket: C) -> io::Result<(PeerId, TlsStream<C>)>
    where
        C: AsyncRead + AsyncWrite + Unpin,
    {
        let other_end = Arc::new(OtherEnd::default());
        let config = self.server(other_end.clone()).map_err(io::Error::other)?;
        let stream = TlsAcceptor::from(Arc::new(config)).accept(socket).await?;
        Ok((other_end.peer()?, stream.into()))
    }
}

/// The quickest first, of those that libp2p allows.
fn ciphers() -> Vec<SupportedCipherSuite> {
    let mut ciphers = vec![
        cipher_suite::TLS13_AES_256_GCM_SHA384,
        cipher_suite::TLS13_AES_128_GCM_SHA256,
        cipher_suite::TLS13_CHACHA20_POLY1305_SHA256,
    ];
    if !has_aes() {
        ciphers.reverse();
    }
    ciphers
}

/// Without instructions for it, AES is several times slower than ChaCha20.
fn has_aes() -> bool {
    #[cfg(target_arch = "x86_64")]
    return std::arch::is_x86_feature_detected!("aes");
    #[cfg(target_arch = "aarch64")]
    return std::arch::is_aarch64_feature_detected!("aes");
    #[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
    false
}

/// Who is at the other end of one connection, once it has proven that the certificate is its
/// own. That this is whom we meant to dial, the swarm sees to.
#[derive(Debug, Default)]
struct OtherEnd(OnceLock<PeerId>);

impl OtherEnd {
    fn peer(&self) -> io::Result<PeerId> {
        let unproven = || io::Error::new(io::ErrorKind::InvalidData, "no proof of who it is");
        self.0.get().copied().ok_or_else(unproven)
    }

    /// The certificate is good, with the identity in it, and signs what was said so far. All of
    /// it is looked at here, which comes last, and once: it takes three signatures.
    fn prove(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        let certificate = certificate::parse(certificate)?;
        certificate.verify_signature(signed.scheme, message, signed.signature())?;
        let peer = certificate.peer_id();
        match *self.0.get_or_init(|| peer) == peer {
            true => Ok(HandshakeSignatureValid::assertion()),
            false => Err(rustls::Error::General("another peer than before".into())),
        }
    }
}

fn is_alone(intermediates: &[CertificateDer<'_>]) -> Result<(), rustls::Error> {
    match intermediates.is_empty() {
        true => Ok(()),
        false => Err(rustls::Error::General("more than one certificate".into())),
    }
}

fn not_spoken() -> Result<HandshakeSignatureValid, rustls::Error> {
    Err(rustls::Error::General("only TLS 1.3 is spoken".into()))
}

const SCHEMES: [SignatureScheme; 3] = [
    SignatureScheme::ECDSA_NISTP256_SHA256,
    SignatureScheme::ECDSA_NISTP384_SHA384,
    SignatureScheme::ED25519,
];

impl ServerCertVerifier for OtherEnd {
    fn verify_server_cert(
        &self,
        _: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        _: &ServerName<'_>,
        _: &[u8],
        _: UnixTime,
    ) -> Result<ServerCertVerified, rustls::Error> {
        is_alone(intermediates).map(|()| ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        _: &[u8],
        _: &CertificateDer<'_>,
        _: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        not_spoken()
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        self.prove(message, certificate, signed)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        SCHEMES.to_vec()
    }
}

impl ClientCertVerifier for OtherEnd {
    fn root_hint_subjects(&self) -> &[DistinguishedName] {
        &[]
    }

    fn verify_client_cert(
        &self,
        _: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        _: UnixTime,
    ) -> Result<ClientCertVerified, rustls::Error> {
        is_alone(intermediates).map(|()| ClientCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        _: &[u8],
        _: &CertificateDer<'_>,
        _: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        not_spoken()
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        self.prove(message, certificate, signed)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        SCHEMES.to_vec()
    }
}

impl UpgradeInfo for Security {
    type Info = &'static str;
    type InfoIter = [&'static str; 2];

    fn protocol_info(&self) -> Self::InfoIter {
        [TLS, NOISE]
    }
}

type Upgrading<C> = BoxFuture<'static, io::Result<(PeerId, Secured<C>)>>;

impl<C: AsyncRead + AsyncWrite + Send + Unpin + 'static> InboundConnectionUpgrade<C> for Security {
    type Output = (PeerId, Secured<C>);
    type Error = io::Error;
    type Future = Upgrading<C>;

    fn upgrade_inbound(self, socket: C, protocol: &'static str) -> Upgrading<C> {
        let upgrade = async move {
            if protocol == TLS {
                let (peer, stream) = self.tls.accept(socket).await?;
                return Ok((peer, Either::Left(Joined::new(stream))));
            }
            let upgrade = self.noise.upgrade_inbound(socket, protocol);
            let (peer, stream) = upgrade.await.map_err(io::Error::other)?;
            Ok((peer, Either::Right(stream)))
        };
        upgrade.boxed()
    }
}

impl<C: AsyncRead + AsyncWrite + Send + Unpin + 'static> OutboundConnectionUpgrade<C> for Security {
    type Output = (PeerId, Secured<C>);
    type Error = io::Error;
    type Future = Upgrading<C>;

    fn upgrade_outbound(self, socket: C, protocol: &'static str) -> Upgrading<C> {
        let upgrade = async move {
            if protocol == TLS {
                let (peer, stream) = self.tls.dial(socket).await?;
                return Ok((peer, Either::Left(Joined::new(stream))));
            }
            let upgrade = self.noise.upgrade_outbound(socket, protocol);
            let (peer, stream) = upgrade.await.map_err(io::Error::other)?;
            Ok((peer, Either::Right(stream)))
        };
        upgrade.boxed()
    }
}

#[cfg(test)]
mod tests {
    use futures::{AsyncReadExt, AsyncWriteExt, future::try_join};
    use futures_rustls::rustls::{server::ClientHello, sign::CertifiedKey};
    use libp2p::tcp::tokio::TcpStream;

    use super::*;

    async fn sockets() -> (TcpStream, TcpStream) {
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.expect("a port");
        let address = listener.local_addr().expect("an address");
        let dialled = tokio::net::TcpStream::connect(address);
        let (dialled, accepted) = try_join(dialled, listener.accept()).await.expect("connected");
        (TcpStream(dialled), TcpStream(accepted.0))
    }

    #[tokio::test]
    async fn both_ends_know_each_other_by_either_protocol() {
        for protocol in [TLS, NOISE] {
            let keys = [(); 2].map(|()| Keypair::generate_ed25519());
            let [one, two] = keys.each_ref().map(|key| Security::new(key).expect("a key"));
            let (dialled, accepted) = sockets().await;
            let ends = try_join(
                one.upgrade_outbound(dialled, protocol),
                two.upgrade_inbound(accepted, protocol),
            );
            let ((peer_of_one, mut near), (peer_of_two, mut far)) = ends.await.expect(protocol);
            assert_eq!(peer_of_one, keys[1].public().to_peer_id());
            assert_eq!(peer_of_two, keys[0].public().to_peer_id());
            let bytes: Vec<u8> = (0..300_000u32).map(|number| number as u8).collect();
            let write = async {
                near.write_all(&bytes[..12]).await?;
                near.write_all(&bytes[12..]).await?;
                near.flush().await
            };
            let mut read = vec![0; bytes.len()];
            try_join(write, far.read_exact(&mut read)).await.expect("sent");
            assert!(read == bytes);
        }
    }

    #[tokio::test]
    async fn the_cipher_is_one_that_the_processor_knows() {
        let [one, two] = [(); 2].map(|()| Tls::new(&Keypair::generate_ed25519()).expect("a key"));
        let (dialled, accepted) = sockets().await;
        let ((_, stream), _) =
            try_join(one.dial(dialled), two.accept(accepted)).await.expect("connected");
        let cipher = stream.get_ref().1.negotiated_cipher_suite().expect("one").suite();
        assert_eq!(cipher, ciphers()[0].suite());
        assert_eq!(has_aes(), cipher == rustls::CipherSuite::TLS13_AES_256_GCM_SHA384);
    }

    /// Shows one certificate and signs with the key of another.
    #[derive(Debug)]
    struct Borrowed(Arc<CertifiedKey>);

    impl ResolvesServerCert for Borrowed {
        fn resolve(&self, _: ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
            Some(self.0.clone())
        }
    }

    impl ResolvesClientCert for Borrowed {
        fn resolve(&self, _: &[&[u8]], _: &[SignatureScheme]) -> Option<Arc<CertifiedKey>> {
            Some(self.0.clone())
        }

        fn has_certs(&self) -> bool {
            true
        }
    }

    #[tokio::test]
    async fn a_certificate_without_its_key_proves_nothing() {
        let victim = certificate::generate(&Keypair::generate_ed25519()).expect("one").0;
        let own = Keypair::generate_ed25519();
        let key = certificate::generate(&own).expect("one").1;
        let key = aws_lc_rs::sign::any_supported_type(&key).expect("a key");
        let borrowed = Arc::new(Borrowed(Arc::new(CertifiedKey::new(vec![victim], key))));
        let honest = Tls::new(&Keypair::generate_ed25519()).expect("a key");
        let impostor = Tls {
            as_dialler: borrowed.clone(),
            as_listener: borrowed,
            ..Tls::new(&own).expect("a key")
        };
        let (dialled, accepted) = sockets().await;
        let (_, refused) = futures::join!(impostor.accept(accepted), honest.dial(dialled));
        assert!(refused.is_err());
        let (dialled, accepted) = sockets().await;
        let (_, refused) = futures::join!(impostor.dial(dialled), honest.accept(accepted));
        assert!(refused.is_err());
    }
}
