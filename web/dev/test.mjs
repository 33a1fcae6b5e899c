/* Bundles test/*.test.ts with vite and runs them in Node: npm test */
import { mkdtempSync, readdirSync, rmSync } from 'node:fs';
import { spawnSync } from 'node:child_process';
import { join } from 'node:path';

if (!import.meta.dirname) {
  console.error(`SKIPPED: Node 20.19 or newer is needed, this is ${process.version}`);
  process.exit(77);
}
const root = join(import.meta.dirname, '..');
let build;
try {
  ({ build } = await import('vite'));
} catch {
  console.error('SKIPPED: vite is not installed (Node, npm or a registry was missing)');
  process.exit(77);
}
const tests = readdirSync(join(root, 'test')).filter((name) => name.endsWith('.test.ts'));
// Below the packages, so that what is not bundled is found.
const out = mkdtempSync(join(root, 'node_modules', '.test-'));
try {
  await build({
    root, configFile: false, logLevel: 'warn',
    build: { ssr: true, outDir: out, target: 'node20', rollupOptions: { input: tests.map((name) => join(root, 'test', name)) } },
    ssr: { noExternal: true },
  });
  const files = readdirSync(out).filter((name) => /\.test\.m?js$/.test(name)).map((name) => join(out, name));
  if (files.length !== tests.length) throw new Error(`${files.length} of ${tests.length} tests were built`);
  const run = spawnSync(process.execPath, ['--test', ...files], { stdio: 'inherit' });
  process.exitCode = run.status ?? 1;
} finally {
  rmSync(out, { recursive: true, force: true });
}
