//! One connection's side of the stream behaviour: asks for streams and reports them.

use std::{
    collections::VecDeque,
    convert::Infallible,
    future::{Ready, ready},
    sync::Arc,
    task::{Context, Poll},
    time::Duration,
};

use libp2p::{
    Stream, StreamProtocol,
    core::{InboundUpgrade, OutboundUpgrade, UpgradeInfo},
    swarm::{
        ConnectionHandler, ConnectionHandlerEvent, StreamUpgradeError, SubstreamProtocol,
        handler::{ConnectionEvent, DialUpgradeError},
    },
};

use super::behaviour::RequestId;

#[derive(Debug)]
pub struct OpenStream {
    pub request: RequestId,
    pub protocol: StreamProtocol,
}

#[derive(Debug)]
pub enum Report {
    /// `request` is absent for a stream that the peer opened.
    Opened {
        request: Option<RequestId>,
        protocol: StreamProtocol,
        stream: Stream,
    },
    Failed {
        request: RequestId,
        error: String,
    },
}

pub struct Handler {
    accepted: Arc<[StreamProtocol]>,
    open_timeout: Duration,
    asked: VecDeque<OpenStream>,
    reports: VecDeque<Report>,
}

impl Handler {
    pub fn new(accepted: Arc<[StreamProtocol]>, open_timeout: Duration) -> Self {
        Handler { accepted, open_timeout, asked: VecDeque::new(), reports: VecDeque::new() }
    }
}

impl ConnectionHandler for Handler {
    type FromBehaviour = OpenStream;
    type ToBehaviour = Report;
    type InboundProtocol = Upgrade;
    type OutboundProtocol = Upgrade;
    type InboundOpenInfo = ();
    type OutboundOpenInfo = RequestId;

    fn listen_protocol(&self) -> SubstreamProtocol<Upgrade> {
        SubstreamProtocol::new(Upgrade(self.accepted.clone()), ())
    }

    fn poll(
        &mut self,
        _: &mut Context<'_>,
    ) -> Poll<ConnectionHandlerEvent<Upgrade, RequestId, Report>> {
        // Nothing to wake: the connection polls again after each call of the two below.
        if let Some(report) = self.reports.pop_front() {
            return Poll::Ready(ConnectionHandlerEvent::NotifyBehaviour(report));
        }
        if let Some(OpenStream { request, protocol }) = self.asked.pop_front() {
            let protocol = SubstreamProtocol::new(Upgrade([protocol].into()), request)
                .with_timeout(self.open_timeout);
            return Poll::Ready(ConnectionHandlerEvent::OutboundSubstreamRequest { protocol });
        }
        Poll::Pending
    }

    fn on_behaviour_event(&mut self, event: OpenStream) {
        self.asked.push_back(event);
    }

    fn on_connection_event(&mut self, event: ConnectionEvent<Upgrade, Upgrade, (), RequestId>) {
        match event {
            ConnectionEvent::FullyNegotiatedInbound(inbound) => {
                let (stream, protocol) = inbound.protocol;
                self.reports.push_back(Report::Opened { request: None, protocol, stream });
            }
            ConnectionEvent::FullyNegotiatedOutbound(outbound) => {
                let (stream, protocol) = outbound.protocol;
                let request = Some(outbound.info);
                self.reports.push_back(Report::Opened { request, protocol, stream });
            }
            ConnectionEvent::DialUpgradeError(DialUpgradeError { info, error }) => {
                let error = match error {
                    StreamUpgradeError::Timeout => "the peer did not answer in time".into(),
                    StreamUpgradeError::NegotiationFailed => {
                        "the peer does not speak this protocol".into()
                    }
                    StreamUpgradeError::Io(error) => error.to_string(),
                    StreamUpgradeError::Apply(never) => match never {},
                };
                self.reports.push_back(Report::Failed { request: info, error });
            }
            _ => {}
        }
    }
}

/// Takes the bare stream once its protocol is agreed on.
pub struct Upgrade(Arc<[StreamProtocol]>);

impl UpgradeInfo for Upgrade {
    type Info = StreamProtocol;
    type InfoIter = std::vec::IntoIter<StreamProtocol>;

    fn protocol_info(&self) -> Self::InfoIter {
        Vec::from(&*self.0).into_iter()
    }
}

impl InboundUpgrade<Stream> for Upgrade {
    type Output = (Stream, StreamProtocol);
    type Error = Infallible;
    type Future = Ready<Result<Self::Output, Infallible>>;

    fn upgrade_inbound(self, stream: Stream, protocol: StreamProtocol) -> Self::Future {
        ready(Ok((stream, protocol)))
    }
}

impl OutboundUpgrade<Stream> for Upgrade {
    type Output = (Stream, StreamProtocol);
    type Error = Infallible;
    type Future = Ready<Result<Self::Output, Infallible>>;

    fn upgrade_outbound(self, stream: Stream, protocol: StreamProtocol) -> Self::Future {
        ready(Ok((stream, protocol)))
    }
}
