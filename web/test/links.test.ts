import assert from 'node:assert/strict';
import { test } from 'node:test';
import { safeAddress } from '../src/markdown';

test('only http and https lead anywhere', () => {
  assert.equal(safeAddress('https://example.org/a?b#c'), 'https://example.org/a?b#c');
  assert.equal(safeAddress('HTTP://example.org'), 'http://example.org/');
  for (const address of ['javascript:alert(1)', ' javascript:alert(1)', 'data:text/html,x', 'file:///etc/passwd', '//example.org',
    '/v1/models', 'https:', 'java\nscript:alert(1)', 'vbscript:x', 'blob:https://example.org/1', ''])
    assert.equal(safeAddress(address), null, address);
});
