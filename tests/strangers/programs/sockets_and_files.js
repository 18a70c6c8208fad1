// Goal: descriptors that libuv closes by itself are used again for sockets and files, and no byte
// of one reaches another. In each round 40 files are opened at once, written, read and closed; then
// 12 clients of a server of this process exchange data; then the files are compared. A last part
// does both at the same time.
const fs = require('fs');
const net = require('net');
const CLIENTS = 12, FILES = 40, ROUNDS = 4;
const bytes = (seed, size) => Buffer.alloc(size, String.fromCharCode(97 + seed % 26) + seed);
const all = (count, act) => Promise.all(Array.from({ length: count }, (_, index) => act(index)));
const bad = (text) => { console.log('bad: ' + text); process.exitCode = 1; };

async function write(file, round) {
  const sent = bytes(file * 1000 + round, 2000 + 977 * file);
  const handle = await fs.promises.open(`file-${file}`, 'w+');
  await handle.write(sent, 0, sent.length, 0);
  const back = Buffer.alloc(sent.length);
  await handle.read(back, 0, sent.length, 0);
  if (!back.equals(sent)) bad(`file ${file} round ${round}, read before it is closed`);
  return { handle, sent };
}

async function compare(file, round, sent) {
  if (!(await fs.promises.readFile(`file-${file}`)).equals(sent)) bad(`file ${file}, ${round}`);
}

const talk = (client, round, port) => new Promise((resolve) => {
  const sent = bytes(client * 100 + round, 3000 + 517 * client);
  const parts = [];
  const socket = net.connect(port, '127.0.0.1', () => socket.end(sent));
  socket.on('data', (part) => parts.push(part));
  socket.on('error', (error) => bad(`client ${client}: ${error.message}`));
  socket.on('close', () => {
    if (!Buffer.concat(parts).equals(sent)) bad(`client ${client} round ${round}`);
    resolve();
  });
});

const server = net.createServer((socket) => socket.pipe(socket));
server.listen(0, '127.0.0.1', async () => {
  const port = server.address().port;
  for (let round = 0; round < ROUNDS; round++) {
    const written = await all(FILES, (file) => write(file, round));
    await all(FILES, (file) => written[file].handle.close());
    await all(CLIENTS, (client) => talk(client, round, port));
    await all(FILES, (file) => compare(file, round, written[file].sent));
  }
  await Promise.all([
    all(CLIENTS, async (client) => {
      for (let round = 0; round < 3 * ROUNDS; round++) await talk(client, 100 + round, port);
    }),
    all(FILES, async (file) => {
      for (let round = 100; round < 100 + ROUNDS; round++) {
        const { handle, sent } = await write(file, round);
        await handle.close();
        await compare(file, round, sent);
      }
    }),
  ]);
  server.close(() => console.log('done'));
});
