// A stranger's implementation of Mycel's hello, over js-libp2p: TCP, Noise, Yamux.
//
// One JSON object comes on standard input and one goes to standard output:
//
//   { address, secret, hello, key }
//     address   multiaddr of a Mycel node, ending in /p2p/<peer id>
//     secret    hex: the Ed25519 seed of this node's identity
//     hello     hex: what this node says in the hello, or null to say nothing and to try
//               its luck at once
//     key       hex: the capability key whose providers are looked for
//   { admitted, refusal, ping_ms, protocols, providers }

import './node20.mjs'

import { noise } from '@chainsafe/libp2p-noise'
import { yamux } from '@chainsafe/libp2p-yamux'
import { generateKeyPairFromSeed } from '@libp2p/crypto/keys'
import { identify } from '@libp2p/identify'
import { kadDHT, passthroughMapper } from '@libp2p/kad-dht'
import { ping } from '@libp2p/ping'
import { tcp } from '@libp2p/tcp'
import { byteStream } from '@libp2p/utils'
import { multiaddr } from '@multiformats/multiaddr'
import { createLibp2p } from 'libp2p'
import { CID } from 'multiformats/cid'

const HELLO = '/mycel/hello/1'
const KADEMLIA = '/mycel/kad/1'
const ADMITTED = 0
const DEADLINE_MS = 10_000

const order = JSON.parse(await read(process.stdin))
const result = { admitted: false, refusal: '', ping_ms: null, protocols: [], providers: [] }
const node = await createLibp2p({
  privateKey: await generateKeyPairFromSeed('Ed25519', Buffer.from(order.secret, 'hex')),
  transports: [tcp()],
  connectionEncrypters: [noise()],
  streamMuxers: [yamux()],
  // The gate cuts whoever opens another stream before the hello: no identify, no ping, no
  // reconnection by themselves.
  connectionMonitor: { enabled: false },
  services: {
    identify: identify({ runOnConnectionOpen: false, timeout: DEADLINE_MS }),
    ping: ping(),
    dht: kadDHT({
      protocol: KADEMLIA,
      clientMode: true,
      peerInfoMapper: passthroughMapper,
      allowQueryWithZeroPeers: true
    })
  }
})
try {
  await visit()
} catch (error) {
  result.refusal ||= `${error.name}: ${error.message}`
}
process.stdout.write(JSON.stringify(result) + '\n', () => process.exit(0))

async function visit () {
  const connection = await node.dial(multiaddr(order.address), deadline())
  if (order.hello != null) await sayHello(connection)
  const peer = connection.remotePeer
  result.ping_ms = await node.services.ping.ping(peer, deadline())
  result.protocols = (await node.services.identify.identify(connection, deadline())).protocols
  await until(() => node.services.dht.routingTable.size > 0)
  for await (const event of node.services.dht.findProviders(capability(), deadline())) {
    if (event.name === 'PROVIDER') {
      result.providers.push(...event.providers.map((provider) => provider.id.toString()))
    }
  }
}

// What identify brought reaches the routing table in its own time.
async function until (condition) {
  const { signal } = deadline()
  while (!condition() && !signal.aborted) {
    await new Promise((resolve) => setTimeout(resolve, 20))
  }
}

// [version][length][block] ──▶ [version][verdict][length][block] ──▶ [verdict][length][reason]
async function sayHello (connection) {
  const stream = byteStream(await connection.newStream(HELLO, deadline()))
  const block = Buffer.from(order.hello, 'hex')
  await stream.write(Buffer.concat([Buffer.from([2]), length(block), block]), deadline())
  const head = await exactly(stream, 4)
  const answer = await exactly(stream, (head[2] << 8) | head[3])
  if (head[1] !== ADMITTED) {
    result.refusal = Buffer.from(answer).toString()
    throw new Error(result.refusal)
  }
  await stream.write(Uint8Array.from([ADMITTED, 0, 0]), deadline())
  await stream.unwrap().close(deadline())
  result.admitted = true
}

async function exactly (stream, bytes) {
  if (bytes === 0) return new Uint8Array()
  return (await stream.read({ bytes, ...deadline() })).subarray()
}

function length (block) {
  return Buffer.from([block.length >> 8, block.length & 0xff])
}

// Kademlia's keys are any bytes; this implementation wants them to look like a content id.
function capability () {
  const bytes = Buffer.from(order.key, 'hex')
  return CID.createV1(0x55, { code: 0, size: bytes.length, digest: bytes, bytes })
}

function deadline () {
  return { signal: AbortSignal.timeout(DEADLINE_MS) }
}

async function read (stream) {
  const chunks = []
  for await (const chunk of stream) chunks.push(chunk)
  return Buffer.concat(chunks).toString()
}
