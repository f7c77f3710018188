# ruff: noqa: E501
"""Files of the XML formats, with their corners."""

XLIFF12 = b"""<?xml version="1.0" encoding="UTF-8"?>
<!-- a comment -->
<xliff version="1.2" xmlns="urn:oasis:names:tc:xliff:document:1.2" xmlns:its="http://www.w3.org/2005/11/its">
  <file original="a.html" source-language="en" datatype="html">
    <header><note>kept</note></header>
    <body>
      <group id="g1">
        <trans-unit id="1" resname="greeting">
          <source>Hello <g id="1" ctype="bold">big &amp; <x id="2"/>old</g> world<bx id="3" rid="3"/>!<ex id="4" rid="3"/></source>
          <note from="author">Be kind</note>
        </trans-unit>
        <trans-unit id="2" approved="yes">
          <source>Save it</source>
          <target state="translated">\xd0\xa1\xd0\xbe\xd1\x85\xd1\x80</target>
        </trans-unit>
        <trans-unit id="3" translate="no"><source>Keep me</source></trans-unit>
        <trans-unit id="4"><source>Review me</source><target state="needs-review-translation" state-qualifier="leveraged-mt">xx</target><note from="knnmt">old</note></trans-unit>
        <trans-unit id="5">
          <source>First one. Second <ph id="1">&lt;br/&gt;</ph>one.</source>
          <seg-source><mrk mtype="seg" mid="0">First one.</mrk> <mrk mtype="seg" mid="1">Second <ph id="1">&lt;br/&gt;</ph>one.</mrk></seg-source>
          <target/>
          <alt-trans><target>not this</target></alt-trans>
        </trans-unit>
        <trans-unit id="6"><source>Call <mrk mtype="protected">ACME Inc.</mrk> or <mrk mtype="term">term</mrk></source><target></target></trans-unit>
      </group>
      <group translate="no"><trans-unit id="7"><source>Not me</source></trans-unit></group>
    </body>
  </file>
</xliff>
"""

XLIFF20 = b"""<?xml version="1.0"?>
<xliff xmlns="urn:oasis:names:tc:xliff:document:2.0" version="2.0" srcLang="en">
 <file id="f1">
  <unit id="u1">
   <originalData><data id="d1">&lt;b></data></originalData>
   <segment id="s1">
    <source>Hello <pc id="1" dataRefStart="d1">big</pc> <ph id="2"/>world. </source>
   </segment>
   <ignorable><source> </source></ignorable>
   <segment id="s2" state="initial">
    <source>It <sc id="3"/>is<ec startRef="3"/> <mrk id="m1" translate="no">ACME</mrk><cp hex="001A"/>.</source>
    <target>It</target>
   </segment>
  </unit>
  <unit id="u2" translate="no"><segment><source>No</source></segment></unit>
  <unit id="u3"><notes><note category="knnmt">old</note><note>mine</note></notes><segment state="translated" subState="knnmt:mt"><source>Again</source><target>xx</target></segment></unit>
  <unit id="u4"><segment state="final"><source>Done</source><target>\xd0\x93\xd0\xbe\xd1\x82</target></segment></unit>
 </file>
</xliff>
"""

TMX = b"""<?xml version="1.0" encoding="utf-8"?>
<!DOCTYPE tmx SYSTEM "tmx14.dtd">
<tmx version="1.4">
<header creationtool="x" segtype="sentence" adminlang="en" srclang="en" datatype="plain text" o-tmf="x" creationtoolversion="1"/>
<body>
  <tu tuid="a">
    <tuv xml:lang="en-US"><seg>Press <bpt i="1">&lt;b></bpt>OK<ept i="1">&lt;/b></ept> <ph x="1">{0}</ph></seg></tuv>
    <tuv xml:lang="fr"><seg>Appuyez</seg></tuv>
  </tu>
  <tu tuid="b">
    <tuv xml:lang="en"><seg>Done</seg></tuv>
    <tuv xml:lang="ru"><seg>\xd0\x93\xd0\xbe\xd1\x82</seg></tuv>
  </tu>
  <tu><tuv xml:lang="fr"><seg>rien</seg></tuv></tu>
</body>
</tmx>
"""

QT = b"""<?xml version="1.0" encoding="utf-8"?>
<!DOCTYPE TS>
<TS version="2.1" sourcelanguage="en">
<context>
    <name>MainWindow</name>
    <message>
        <location filename="a.cpp" line="1"/>
        <source>&amp;Open &quot;it&quot;</source>
        <comment>menu</comment>
        <translation type="unfinished"></translation>
    </message>
    <message numerus="yes">
        <source>%n file(s)</source>
        <translation type="unfinished">
            <numerusform></numerusform>
            <numerusform></numerusform>
            <numerusform></numerusform>
        </translation>
    </message>
    <message numerus="yes">
        <source>%n day(s)</source>
        <translation type="unfinished"/>
    </message>
    <message>
        <source>Escape <byte value="x1b"/>it</source>
        <translation type="unfinished">alt</translation>
    </message>
    <message>
        <source>Done</source>
        <translation>Fertig</translation>
    </message>
    <message>
        <source>Old</source>
        <translation type="vanished">Alt</translation>
    </message>
</context>
</TS>
"""

ANDROID = b"""<?xml version="1.0" encoding="utf-8"?>
<!DOCTYPE resources [ <!ENTITY app "My App"> ]>
<resources xmlns:xliff="urn:oasis:names:tc:xliff:document:1.2">
    <!-- greeting -->
    <string name="hello">Hello <b>you</b>, don\\'t \\"panic\\" &amp; go\\n</string>
    <string name="name" translatable="false">ACME</string>
    <string name="ref">@string/hello</string>
    <string name="long">
        A text
        of two lines
    </string>
    <string name="quoted">"  It's  kept "</string>
    <string name="space">\\u0020space</string>
    <string name="app">Welcome to &app;, <xliff:g id="n" example="Bob">%1$s</xliff:g>!</string>
    <string name="data"><![CDATA[Read <a href="x">this</a> isn\\'t it]]></string>
    <string-array name="days">
        <item>Monday</item>
        <item>Tuesday</item>
    </string-array>
    <plurals name="files">
        <item quantity="one">%d file</item>
        <item quantity="other">%d files</item>
    </plurals>
    <color name="c">#fff</color>
</resources>
"""
