// What js-libp2p takes from Node 22 and Node 20 does not have yet.
Promise.withResolvers ??= function () {
  const made = {}
  made.promise = new Promise((resolve, reject) => Object.assign(made, { resolve, reject }))
  return made
}
