import { readFileSync } from 'node:fs';
import { dirname, join } from 'node:path';
import { defineConfig, type Plugin } from 'vite';

/** assets/licenses.txt: the licence of every npm package that has code in the bundle. */
function licences(): Plugin {
  return {
    name: 'licences',
    generateBundle(_options, bundle) {
      const packages = new Map<string, string>();
      for (const part of Object.values(bundle)) {
        if (part.type !== 'chunk') continue;
        for (const file of Object.keys(part.modules)) {
          const found = /^\0?(.*[\\/]node_modules[\\/](?:@[^\\/]+[\\/])?([^\\/]+))[\\/]/.exec(file);
          if (found) packages.set(found[1]!, found[2]!);
        }
      }
      const parts = [...packages.keys()].sort().map((directory) => {
        const about = JSON.parse(readFileSync(join(directory, 'package.json'), 'utf8')) as { name: string; version: string; license: string };
        return `${about.name} ${about.version} (${about.license})\n\n${licenceText(directory)}\n`;
      });
      const source = 'The page of moeflux has code of these packages in it.\n\n' +
        (parts.length ? parts.join('\n----------------------------------------\n\n') : 'None.\n');
      this.emitFile({ type: 'asset', fileName: 'assets/licenses.txt', source });
    },
  };
}

function licenceText(directory: string): string {
  for (const name of ['LICENSE', 'LICENSE.md', 'LICENSE.txt', 'LICENCE', 'license']) {
    try { return readFileSync(join(directory, name), 'utf8').trim(); } catch { /* the next name */ }
  }
  throw new Error(`${directory} has no file with its licence: do not bundle it`);
}

const server = process.env.MOEFLUX ?? 'http://127.0.0.1:8080';

export default defineConfig({
  root: dirname(new URL(import.meta.url).pathname),
  plugins: [licences()],
  server: { proxy: { '/v1': server, '/metrics': server, '/health': server } },
  build: {
    outDir: process.env.PAGE_OUT ?? 'dist',
    emptyOutDir: true,
    assetsInlineLimit: 0,
    cssCodeSplit: false,
    modulePreload: false,
    reportCompressedSize: false,
    target: 'es2022',
    chunkSizeWarningLimit: 150,
  },
});
