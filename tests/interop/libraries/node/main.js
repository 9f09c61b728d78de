// The npm package v9u-smb2, told what to do line by line (tests/interop/libraries.py).
'use strict';

const fs = require('fs');
const readline = require('readline');
const SMB2 = require('v9u-smb2');

let share;

async function act([what, ...part]) {
  switch (what) {
    case 'connect': {
      const [port, name, username, password] = part;
      share = new SMB2({
        share: `\\\\127.0.0.1\\${name}`, domain: '', username, password, port: Number(port), autoCloseTimeout: 0,
      });
      // It connects with the first request.
      await share.readdir('');
      return '';
    }
    case 'mkdir':
      await share.mkdir(part[0]);
      return '';
    case 'put':
      await share.writeFile(part[0], fs.readFileSync(part[1]), { flag: 'w' });
      return '';
    case 'append': {
      const start = await share.getSize(part[0]);
      const stream = await share.createWriteStream(part[0], { flags: 'r+', start });
      await new Promise((ended, failed) => {
        stream.on('error', failed).on('finish', ended).end(fs.readFileSync(part[1]));
      });
      return '';
    }
    case 'get':
      fs.writeFileSync(part[1], await share.readFile(part[0]));
      return '';
    case 'delete':
      await share.unlink(part[0]);
      return '';
    case 'rmdir':
      await share.rmdir(part[0]);
      return '';
    case 'rename':
      await share.rename(part[0], part[1]);
      return '';
    case 'list':
      return part[1] === '*' ? (await share.readdir(part[0])).join('\t') : 'absent';
    case 'stat': {
      const found = await share.stat(part[0]);
      return `${found.size}\t${Math.floor(found.mtime / 1000)}`;
    }
    case 'truncate':
      await share.truncate(part[0], Number(part[1]));
      return '';
    default:
      return 'absent';
  }
}

async function main() {
  for await (const line of readline.createInterface({ input: process.stdin })) {
    let said;
    try {
      said = await act(line.split('\t'));
      said = said === 'absent' ? said : `ok\t${said}`;
    } catch (why) {
      said = `error\t${String(why.code || '')} ${String(why.message || why).replace(/\n/g, ' ')}`;
    }
    console.log(said);
  }
  process.exit(0);
}

// What goes wrong in the background ends a request, not the driver.
process.on('uncaughtException', (why) => console.log(`error\t${String(why).replace(/\n/g, ' ')}`));

main();
